#!/usr/bin/env python3
# The gateway for S3 with real clients: objects are compared with files, and the daemon is killed.
"""usage: serve_s3.py FF PART

  clients   boto3, rclone, s3cmd, and awscli where it is: objects, listings, copies, uploads, URLs
  mounted   the mount and S3 see the same data
  rights    tokens of users, what each may reach, and revocation
  killed    the daemon is killed in uploads: no half object is left
  full      the disks are full: uploads are refused and leave nothing
  tls       a certificate of the server

Exits with 77 where something that a part needs is not there.
"""
import atexit
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

FF = os.path.realpath(sys.argv[1])
DEADLINE_S = 60
MIB = 1 << 20


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


try:
    import boto3
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError:
    skip("python3-boto3 is not installed")


STARTED = []  # processes, which end with this one


def end_all():
    for process in STARTED:
        process.kill()


atexit.register(end_all)


def until(what, condition):
    """Polls until the condition holds, and returns its value."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.02)


def expect(actual, expected, what=""):
    assert actual == expected, f"{what}: {actual!r}, not {expected!r}"


def run(*words, **settings):
    done = subprocess.run([FF, *words], env={"PATH": os.environ["PATH"], **settings},
                          capture_output=True, text=True)
    expect(done.returncode, 0, done.stderr)
    return done.stdout


class Cluster:
    """A cluster of this machine, with gateways and users."""

    def __init__(self, folder, place=None, *words):
        self.folder, self.place = folder, place or f"{folder}/cluster"
        self.state = {"FF_STATE": f"{folder}/state"}
        text = run("up", "--dir", self.place, *words, **self.state)
        line = next(line for line in text.splitlines() if "FF_META=" in line)
        self.settings = dict(word.split("=", 1) for word in line.split() if "=" in word)
        self.settings["FF_KEY"] = self.settings["FF_KEY"].strip("'")
        run("fs", "mkdir", "/objects", **self.settings)
        self.process = self.port = None

    def down(self):
        run("down", "--dir", self.place, "--purge", "--yes", **self.state)

    def serve(self, *words, port=0, at="127.0.0.1"):
        env = {"PATH": os.environ["PATH"], "HOME": "/proc/nonexistent", **self.settings}
        self.process = subprocess.Popen(
            [FF, "serve-kv", f"{self.folder}/kv", "--listen", "127.0.0.1:0", "--s3-listen",
             f"{at}:{port}", "--s3-root", "ff:///objects", *words],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        STARTED.append(self.process)
        if not self.process.stdout.readline().startswith("listening on "):
            self.process.wait()
            raise AssertionError(self.process.stderr.read())
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(DEADLINE_S), 0, "exit code of the daemon")

    def user(self, name, uid):
        """The access key and the secret key of a new user."""
        token = f"{self.folder}/{name}.token"
        run("admin", "user", "add", name, "--uid", str(uid), "--token-file", token,
            **self.settings)
        lines = run("admin", "user", "s3-key", token).split()
        return dict(line.split("=", 1) for line in lines)

    def client(self, keys, scheme="http", **options):
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"},
                        retries={"max_attempts": 1}, **options.pop("config", {}))
        return boto3.client("s3", endpoint_url=f"{scheme}://127.0.0.1:{self.port}",
                            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"],
                            aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"],
                            region_name="us-east-1", config=config, **options)

    def names(self, path):
        """All names below a folder, with hidden ones."""
        return run("fs", "find", path, **self.settings).split()


@contextlib.contextmanager
def cluster(folder, *words, place=None):
    made = Cluster(folder, place, *words)
    try:
        yield made
    finally:
        if made.process is not None:
            made.kill()
        made.down()


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        expect(error.response["Error"]["Code"], code)
    else:
        raise AssertionError(f"not refused: {code}")


def boto(client, ann):
    client.create_bucket(Bucket="books")
    expect([one["Name"] for one in client.list_buckets()["Buckets"]], ["books"])
    data = os.urandom(3 * MIB + 17)
    put = client.put_object(Bucket="books", Key="a b/\u1234+&?.txt", Body=data,
                            ContentType="text/x", Metadata={"one": "1"})
    expect(put["ETag"], f'"{hashlib.md5(data).hexdigest()}"')
    got = client.get_object(Bucket="books", Key="a b/\u1234+&?.txt")
    expect((got["Body"].read() == data, got["ContentType"], got["Metadata"]),
           (True, "text/x", {"one": "1"}))
    part = client.get_object(Bucket="books", Key="a b/\u1234+&?.txt", Range="bytes=100-199")
    expect((part["Body"].read() == data[100:200], part["ContentRange"]),
           (True, f"bytes 100-199/{len(data)}"))
    refused("NoSuchKey", client.get_object, Bucket="books", Key="none")
    refused("NoSuchBucket", client.list_objects_v2, Bucket="none")
    refused("InvalidArgument", client.put_object, Bucket="books", Key="a//b", Body=b"")
    for i in range(30):
        client.put_object(Bucket="books", Key=f"many/{i % 3}-x/{i}", Body=b"x")
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket="books", Prefix="many/", PaginationConfig={"PageSize": 7})
    keys = [one["Key"] for page in pages for one in page["Contents"]]
    expect(keys, sorted(f"many/{i % 3}-x/{i}" for i in range(30)))
    groups = client.list_objects_v2(Bucket="books", Prefix="many/", Delimiter="/")
    expect([one["Prefix"] for one in groups["CommonPrefixes"]],
           [f"many/{i}-x/" for i in range(3)])
    client.copy_object(Bucket="books", Key="copy", CopySource="books/many/0-x/0")
    expect(client.get_object(Bucket="books", Key="copy")["Body"].read(), b"x")
    client.put_object_tagging(Bucket="books", Key="copy",
                              Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    expect(client.get_object_tagging(Bucket="books", Key="copy")["TagSet"],
           [{"Key": "k", "Value": "v"}])
    gone = client.delete_objects(Bucket="books", Delete={
        "Objects": [{"Key": key} for key in keys]})
    expect(len(gone["Deleted"]), 30)
    expect("Contents" in client.list_objects_v2(Bucket="books", Prefix="many/"), False)
    uploads(client)
    urls(client)
    other_sites(client)
    refused("SignatureDoesNotMatch",
            ann({"AWS_SECRET_ACCESS_KEY": "wrong"}).list_objects_v2, Bucket="books")
    refused("InvalidAccessKeyId",
            ann({"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"}).list_objects_v2, Bucket="books")


def uploads(client):
    data = os.urandom(21 * MIB + 5)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        client.upload_file(file.name, "books", "large")  # in parts of 8 MiB
    head = client.head_object(Bucket="books", Key="large")
    assert head["ETag"].endswith('-3"') and head["ContentLength"] == len(data), head
    expect(client.get_object(Bucket="books", Key="large")["Body"].read() == data, True)
    upload = client.create_multipart_upload(Bucket="books", Key="x/y")["UploadId"]
    name = {"Bucket": "books", "Key": "x/y", "UploadId": upload}
    first = client.upload_part(PartNumber=1, Body=data[:5 * MIB], **name)
    second = client.upload_part_copy(PartNumber=2, CopySource="books/large",
                                     CopySourceRange="bytes=10-19", **name)
    expect([part["PartNumber"] for part in client.list_parts(**name)["Parts"]], [1, 2])
    expect([one["Key"] for one in client.list_multipart_uploads(Bucket="books")["Uploads"]],
           ["x/y"])
    client.complete_multipart_upload(MultipartUpload={"Parts": [
        {"PartNumber": 1, "ETag": first["ETag"]},
        {"PartNumber": 2, "ETag": second["CopyPartResult"]["ETag"]}]}, **name)
    expect(client.get_object(Bucket="books", Key="x/y")["Body"].read() ==
           data[:5 * MIB] + data[10:20], True)
    refused("NoSuchUpload", client.abort_multipart_upload, **name)


def urls(client):
    import urllib.request
    url = client.generate_presigned_url("put_object", {"Bucket": "books", "Key": "signed url"}, 60)
    put = urllib.request.Request(url, data=b"by url", method="PUT", headers={"Content-Type": ""})
    expect(urllib.request.urlopen(put).status, 200)
    url = client.generate_presigned_url("get_object", {"Bucket": "books", "Key": "signed url"}, 60)
    expect(urllib.request.urlopen(url).read(), b"by url")
    try:
        urllib.request.urlopen(url.replace("signed", "other"))
        raise AssertionError("the URL is for another object")
    except urllib.error.HTTPError as error:
        expect(error.code, 403)


def other_sites(client):
    """What a browser asks for pages of other sites, and what it may tell them."""
    import urllib.request
    refused("NoSuchCORSConfiguration", client.get_bucket_cors, Bucket="books")
    rule = {"ID": "app", "AllowedOrigins": ["https://*.example"], "AllowedMethods": ["GET", "PUT"],
            "AllowedHeaders": ["x-amz-*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 300}
    client.put_bucket_cors(Bucket="books", CORSConfiguration={"CORSRules": [rule]})
    kept = client.get_bucket_cors(Bucket="books")["CORSRules"]
    expect(kept, [rule])
    refused("InvalidRequest", client.put_bucket_cors, Bucket="books", CORSConfiguration={
        "CORSRules": [{"AllowedOrigins": ["http://*.*"], "AllowedMethods": ["GET"]}]})
    url = client.generate_presigned_url("get_object", {"Bucket": "books", "Key": "signed url"}, 60)

    def ask(origin, method="GET", url=url, **more):
        fields = {"Origin": origin, **{name.replace("_", "-"): more[name] for name in more}}
        try:
            reply = urllib.request.urlopen(urllib.request.Request(url, method=method,
                                                                  headers=fields))
        except urllib.error.HTTPError as error:
            reply = error
        return reply.status, reply.headers["Access-Control-Allow-Origin"], reply.headers
    status, origin, fields = ask("https://a.example", "OPTIONS", url.split("?")[0],
                                 Access_Control_Request_Method="PUT",
                                 Access_Control_Request_Headers="x-amz-date")
    expect((status, origin, fields["Access-Control-Max-Age"]), (200, "https://a.example", "300"))
    expect(ask("https://a.other", "OPTIONS", Access_Control_Request_Method="PUT")[:2], (403, None))
    status, origin, fields = ask("https://a.example")
    expect((status, origin, fields["Access-Control-Expose-Headers"]),
           (200, "https://a.example", "ETag"))
    expect(ask("https://a.other")[:2], (200, None))
    expect(ask("https://a.example", url=url.split("?")[0])[:2], (403, "https://a.example"))
    client.delete_bucket_cors(Bucket="books")
    refused("NoSuchCORSConfiguration", client.get_bucket_cors, Bucket="books")
    expect(ask("https://a.example")[:2], (200, None))


def tree(folder, count=40):
    """Files of all kinds of names below a folder."""
    for i in range(count):
        path = f"{folder}/d{i % 5}/e {i % 3}"
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/f-{i}.\u00e4%25", "wb") as file:
            file.write(os.urandom(i * 10_000))
    with open(f"{folder}/large", "wb") as file:
        file.write(os.urandom(12 * MIB))


def same_trees(one, other):
    subprocess.run(["diff", "-r", one, other], check=True)


def with_rclone(made, keys, folder):
    env = {"PATH": os.environ["PATH"], "HOME": folder, "RCLONE_CONFIG_FF_TYPE": "s3",
           "RCLONE_CONFIG_FF_PROVIDER": "Other",
           "RCLONE_CONFIG_FF_ENDPOINT": f"http://127.0.0.1:{made.port}",
           "RCLONE_CONFIG_FF_ACCESS_KEY_ID": keys["AWS_ACCESS_KEY_ID"],
           "RCLONE_CONFIG_FF_SECRET_ACCESS_KEY": keys["AWS_SECRET_ACCESS_KEY"]}

    def rclone(*words):
        done = subprocess.run(["rclone", *words, "--retries", "1"], env=env, capture_output=True,
                              text=True)
        expect(done.returncode, 0, done.stderr)
        return done.stdout
    tree(f"{folder}/tree")
    rclone("mkdir", "ff:rclone")
    rclone("copy", f"{folder}/tree", "ff:rclone/tree", "--s3-upload-cutoff", "8M",
           "--s3-chunk-size", "5M")
    rclone("check", f"{folder}/tree", "ff:rclone/tree")
    rclone("copy", "ff:rclone/tree", f"{folder}/back")
    same_trees(f"{folder}/tree", f"{folder}/back")
    os.remove(f"{folder}/tree/large")
    rclone("sync", f"{folder}/tree", "ff:rclone/tree")
    expect(len(rclone("lsf", "-R", "--files-only", "ff:rclone/tree").split("\n")), 41)
    rclone("moveto", "ff:rclone/tree/d0", "ff:rclone/moved")
    expect(rclone("lsf", "ff:rclone").split(), ["moved/", "tree/"])
    rclone("purge", "ff:rclone")


def with_s3cmd(made, keys, folder):
    config = f"{folder}/s3cfg"
    with open(config, "w") as file:
        file.write(f"[default]\naccess_key = {keys['AWS_ACCESS_KEY_ID']}\n"
                   f"secret_key = {keys['AWS_SECRET_ACCESS_KEY']}\n"
                   f"host_base = 127.0.0.1:{made.port}\nhost_bucket = 127.0.0.1:{made.port}\n"
                   "use_https = False\nmultipart_chunk_size_mb = 5\n")

    def s3cmd(*words):
        done = subprocess.run(["s3cmd", "-c", config, *words], capture_output=True, text=True)
        expect(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout
    source = f"{folder}/s3tree"
    tree(source, 10)
    s3cmd("mb", "s3://s3cmd")
    s3cmd("sync", f"{source}/", "s3://s3cmd/tree/")
    os.mkdir(f"{folder}/s3back")
    s3cmd("sync", "s3://s3cmd/tree/", f"{folder}/s3back/")
    same_trees(source, f"{folder}/s3back")
    expect(len(s3cmd("ls", "-r", "s3://s3cmd/").splitlines()), 11)
    s3cmd("mv", "s3://s3cmd/tree/large", "s3://s3cmd/other")
    s3cmd("rm", "-r", "--force", "s3://s3cmd/tree")
    expect([line.split()[-1] for line in s3cmd("ls", "s3://s3cmd/").splitlines()],
           ["s3://s3cmd/other"])
    s3cmd("rb", "--force", "--recursive", "s3://s3cmd")


def with_aws(made, keys, folder):
    env = {"PATH": os.environ["PATH"], "HOME": folder, "AWS_DEFAULT_REGION": "us-east-1", **keys}

    def aws(*words):
        done = subprocess.run(["aws", "--endpoint-url", f"http://127.0.0.1:{made.port}", *words],
                              env=env, capture_output=True, text=True)
        expect(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout
    source = f"{folder}/awstree"
    tree(source, 10)
    aws("s3", "mb", "s3://awscli")
    aws("s3", "sync", source, "s3://awscli/tree")
    aws("s3", "sync", "s3://awscli/tree", f"{folder}/awsback")
    same_trees(source, f"{folder}/awsback")
    expect(len(aws("s3", "ls", "--recursive", "s3://awscli").splitlines()), 11)
    aws("s3", "mv", "s3://awscli/tree/large", "s3://awscli/other")
    aws("s3", "rm", "--recursive", "s3://awscli/tree")
    expect([line.split()[-1] for line in aws("s3", "ls", "s3://awscli").splitlines()], ["other"])
    aws("s3", "rb", "--force", "s3://awscli")


def runs(program):
    """Whether it is installed; a name in PATH alone may lead to nothing."""
    return shutil.which(program) is not None and subprocess.run(
        [program, "--version"], capture_output=True).returncode == 0


def give_root(made, uid):
    run("fs", "chown", str(uid), "/objects", **made.settings)


def clients(folder):
    with cluster(folder, "--storage", "1") as made:
        keys = made.user("ann", 1000)
        give_root(made, 1000)
        made.serve()
        boto(made.client(keys), lambda other: made.client({**keys, **other}))
        expect([name for name in made.names("/objects") if ".ff-s3-" in name], [])
        for program, part in (("rclone", with_rclone), ("s3cmd", with_s3cmd),
                              ("aws", with_aws)):
            if runs(program):
                part(made, keys, folder)
                print(f"{program}: passed")
        made.stop()


def mounted(folder):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        skip("only root can mount")
    os.mkdir(f"{folder}/mount")
    with cluster(folder, "--storage", "1", "--mount", f"{folder}/mount") as made:
        keys = made.user("ann", 1000)
        give_root(made, 1000)
        made.serve()
        client = made.client(keys)
        client.create_bucket(Bucket="shared")
        root = f"{folder}/mount/objects/shared"
        data = os.urandom(MIB + 1)
        client.put_object(Bucket="shared", Key="by/s3", Body=data)
        with open(f"{root}/by/s3", "rb") as file:
            expect(file.read() == data, True)
        expect(os.stat(f"{root}/by/s3").st_uid, 1000)
        etag = client.head_object(Bucket="shared", Key="by/s3")["ETag"]
        with open(f"{root}/by/s3", "ab") as file:
            file.write(b"more")
        got = client.get_object(Bucket="shared", Key="by/s3")
        expect(got["Body"].read() == data + b"more", True)
        assert got["ETag"] != etag and got["ETag"].endswith('-0"'), got["ETag"]
        os.makedirs(f"{root}/made/by")
        with open(f"{root}/made/by/mount", "wb") as file:
            file.write(b"text")
        os.symlink("/etc/passwd", f"{root}/link")
        expect([one["Key"] for one in client.list_objects_v2(Bucket="shared")["Contents"]],
               ["by/s3", "made/by/mount"])
        expect(client.get_object(Bucket="shared", Key="made/by/mount")["Body"].read(), b"text")
        refused("NoSuchKey", client.get_object, Bucket="shared", Key="link")
        client.delete_object(Bucket="shared", Key="by/s3")
        until("the mount sees it, too", lambda: not os.path.exists(f"{root}/by"))
        made.stop()


def rights(folder):
    with cluster(folder, "--storage", "1") as made:
        ann, bob = made.user("ann", 1000), made.user("bob", 1001)
        give_root(made, 1000)
        made.serve()
        first, second = made.client(ann), made.client(bob)
        first.create_bucket(Bucket="anns")
        first.put_object(Bucket="anns", Key="open", Body=b"text")
        first.put_object(Bucket="anns", Key="closed", Body=b"text")
        run("fs", "chmod", "600", "/objects/anns/closed", **made.settings)
        expect(second.get_object(Bucket="anns", Key="open")["Body"].read(), b"text")
        refused("AccessDenied", second.get_object, Bucket="anns", Key="closed")
        refused("AccessDenied", second.put_object, Bucket="anns", Key="new", Body=b"x")
        refused("AccessDenied", second.delete_object, Bucket="anns", Key="open")
        refused("AccessDenied", second.create_bucket, Bucket="bobs")
        run("admin", "user", "remove", "bob", **made.settings)
        until("the keys of the removed user are refused", lambda: is_refused(second))
        expect(first.get_object(Bucket="anns", Key="closed")["Body"].read(), b"text")
        made.stop()
        exposed = subprocess.run(
            [FF, "serve-kv", f"{folder}/kv", "--listen", "127.0.0.1:0", "--s3-listen", "0.0.0.0:0",
             "--s3-root", "ff:///objects"], env=made.settings, capture_output=True, text=True)
        expect((exposed.returncode, "without encryption" in exposed.stderr), (5, True),
               exposed.stderr)


def is_refused(client):
    try:
        client.get_object(Bucket="anns", Key="open")
        return False
    except ClientError as error:
        return error.response["Error"]["Code"] == "InvalidAccessKeyId"


class Putters:
    """Threads that put objects whose bytes follow from their keys, again and again."""

    def __init__(self, made, keys):
        self.made, self.keys, self.stopping, self.acked = made, keys, False, {}
        self.threads = [threading.Thread(target=self.put, args=(i,)) for i in range(3)]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def data(key):
        return hashlib.sha256(key.encode()).digest() * (40_000 if key.endswith("0") else 3000)

    def put(self, number):
        client, i = self.made.client(self.keys), 0
        while not self.stopping:
            key, i = f"folder{i % 3}/{number}-{i}", i + 1
            try:
                client.put_object(Bucket="bucket", Key=key, Body=self.data(key))
                self.acked[key] = True
            except (BotoCoreError, ClientError):
                client = self.made.client(self.keys)
                time.sleep(0.01)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return self.acked


def killed(folder):
    with cluster(folder, "--storage", "1") as made:
        keys = made.user("ann", 1000)
        give_root(made, 1000)
        made.serve()
        made.client(keys).create_bucket(Bucket="bucket")
        acked = {}
        for _ in range(4):
            port, putters = made.port, Putters(made, keys)
            until("there is load", lambda: len(putters.acked) > 30)
            made.kill()
            acked.update(putters.stop())
            made.serve(port=port)
        client = made.client(keys)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        found = {one["Key"]: one["ETag"] for page in pages for one in page.get("Contents", [])}
        assert set(acked) <= set(found), set(acked) - set(found)
        for key, etag in found.items():  # also those that were not acknowledged are whole
            data = Putters.data(key)
            expect(etag, f'"{hashlib.md5(data).hexdigest()}"', key)
            expect(client.get_object(Bucket="bucket", Key=key)["Body"].read() == data, True, key)
        made.stop()


def full(folder):
    disk = f"{folder}/disk"
    os.mkdir(disk)
    small = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=768m", "ff", disk], capture_output=True
    ).returncode == 0
    if not small:
        skip("only root can mount a small disk")
    try:
        with cluster(folder, "--storage", "1", place=f"{disk}/cluster") as made:
            keys = made.user("ann", 1000)
            give_root(made, 1000)
            made.serve()
            client = made.client(keys)
            client.create_bucket(Bucket="bucket")
            kept = fill(client)
            expect([name for name in made.names("/objects") if ".ff-s3-" in name], [])
            for i in range(kept):
                expect(client.head_object(Bucket="bucket", Key=f"a/{i}")["ContentLength"],
                       16 * MIB)
            expect(client.list_objects_v2(Bucket="bucket")["KeyCount"], kept)
            made.stop()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(client):
    data = os.urandom(16 * MIB)
    for i in range(100):
        try:
            client.put_object(Bucket="bucket", Key=f"a/{i}", Body=data)
        except ClientError as error:
            expect(error.response["Error"]["Code"], "StorageFull")
            return i
    raise AssertionError("the disks are not full")


def tls(folder):
    if shutil.which("openssl") is None:
        skip("openssl is not installed")
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-subj", "/CN=server", "-keyout", "server.key", "-x509", "-days", "2",
                    "-out", "server.pem", "-addext", "subjectAltName=IP:127.0.0.1"],
                   cwd=folder, check=True, capture_output=True)
    os.chmod(f"{folder}/server.key", 0o600)
    with cluster(folder, "--storage", "1") as made:
        keys = made.user("ann", 1000)
        give_root(made, 1000)
        made.serve("--s3-tls-cert", f"{folder}/server.pem", "--s3-tls-key", f"{folder}/server.key",
                   at="0.0.0.0")
        client = made.client(keys, "https", verify=f"{folder}/server.pem")
        client.create_bucket(Bucket="bucket")
        data = os.urandom(20 * MIB)
        client.put_object(Bucket="bucket", Key="a", Body=data)
        expect(client.get_object(Bucket="bucket", Key="a")["Body"].read() == data, True)
        with socket.create_connection(("127.0.0.1", made.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP/"), "it answers without TLS"
        made.stop()


PARTS = {part.__name__: part for part in (clients, mounted, rights, killed, full, tls)}

if __name__ == "__main__":
    # After SIGTERM, too, nothing runs on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as work:
        PARTS[sys.argv[2]](work)
    print("passed")
