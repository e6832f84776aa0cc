#!/usr/bin/env python3
# The scheduler's page in headless Chromium, on a real `ff schedule serve` whose nodes run nothing.
# Without Chromium: skipped.
"""usage: schedule_page.py FF PAPER-NODES empty|ten|many|restart

FF_PAGE_SHOTS=FOLDER keeps pictures of what was seen, for people.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    print("python3-selenium is missing: './bootstrap' installs it")
    sys.exit(77)

MOST_S = 90
PHONE = (360, 740)
DESK = (1280, 900)
NOBODY = 65534
EVIL = "</script><b>bold</b> \x1b[31m\r\"'& \N{ROCKET} \N{RIGHT-TO-LEFT OVERRIDE}olleh"


# Scheduler, nodes and commands have no keys here.
os.environ["FF_INSECURE"] = "1"


def until(what, condition):
    """What the condition comes to give; never waits longer than it must."""
    end = time.monotonic() + MOST_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"timed out waiting until {what}"
        time.sleep(0.05)


class Lines:
    """What a program writes, as it comes."""

    def __init__(self, stream):
        self.text = ""
        threading.Thread(target=self.read, args=(stream,), daemon=True).start()

    def read(self, stream):
        for line in stream:
            self.text += line


class Cluster:
    """A scheduler, and nodes of it."""

    def __init__(self, folder):
        self.folder = folder
        self.listen, self.http = "127.0.0.1:0", "127.0.0.1:0"
        self.nodes = None
        self.start()

    def start(self):
        self.scheduler = subprocess.Popen(
            [FF, "schedule", "serve", "--listen", self.listen, "--http", self.http,
             "--dir", os.path.join(self.folder, "schedule")],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.out, self.log = Lines(self.scheduler.stdout), Lines(self.scheduler.stderr)
        until("the scheduler listens", lambda: "pages on port" in self.out.text)
        # The same ones after a restart.
        self.listen = re.search(r"listening on (\S+)", self.out.text)[1]
        self.http = "127.0.0.1:" + re.search(r"pages on port (\d+)", self.out.text)[1]

    def kill(self):
        self.scheduler.send_signal(signal.SIGKILL)
        self.scheduler.wait()

    def link(self):
        """The newest."""
        return until("a login link", lambda: re.findall(r"http://\S+/login\?token=\w+",
                                                        self.log.text))[-1]

    def join(self, count, zones=1, of_leaf=16):
        self.nodes = subprocess.Popen([NODES, self.listen, str(count), str(zones), str(of_leaf)],
                                      text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.nodes.stdout.readline() == "all\n"

    def silence(self, name):
        self.nodes.stdin.write(f"silent {name}\n")
        self.nodes.stdin.flush()

    def ff(self, *words):
        user = NOBODY if os.geteuid() == 0 else None
        ran = subprocess.run([FF, "schedule", words[0], "--scheduler", self.listen, *words[1:]],
                             capture_output=True, text=True, user=user, cwd="/",
                             env={"PATH": "/usr/bin:/bin", "HOME": "/proc/nonexistent",
                                  "FF_INSECURE": "1"}, check=False)
        assert ran.returncode == 0, f"{words}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def submit(self, name, nodes=1, *more):
        said = self.ff("submit", "--json", "--name", name, "-n", str(nodes), *more, "--", "train",
                       "--layers", "24")
        return json.loads(said)["data"]["task"]

    def close(self):
        if self.nodes:
            self.nodes.stdin.close()
            self.nodes.wait()
        self.kill()


class Page:
    """The page in a browser."""

    def __init__(self, folder, size=DESK):
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     f"--user-data-dir={folder}/browser", "--no-first-run"):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.binary_location = "/usr/bin/chromium"
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_page_load_timeout(MOST_S)
        self.said = []      # by the browser's console
        self.asked = set()  # where requests went to
        self.size(*size)

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": name}]})

    def open(self, link):
        self.driver.get(link)

    def js(self, script, *words):
        return self.driver.execute_script(script, *words)

    def text(self, what):
        return self.js("const e = document.querySelector(arguments[0]);"
                       "return e === null || e.hidden ? '' : e.textContent", what)

    def state(self):
        return self.js("return document.body.dataset.state || ''")

    def live(self):
        until("the page is live", lambda: self.state() == "live")

    def has(self, what, part):
        until(f"{what} has '{part}' and not '{self.text(what)}'", lambda: part in self.text(what))

    def rows(self, table):
        """Of each row of a table: its cells' texts, by column."""
        return self.js("""return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)].map(
            (row) => Object.fromEntries([...row.cells].map(
                (cell) => [cell.className.split(" ")[0], cell.textContent])))""", table)

    def find(self, words):
        box = self.driver.find_element(By.ID, "find")
        box.clear()
        box.send_keys(words)

    def fits_a_phone(self):
        self.size(*PHONE)
        wide = self.js("return document.documentElement.scrollWidth")
        assert wide <= PHONE[0], f"{wide} pixels on a screen of {PHONE[0]}"

    def shot(self, name):
        folder = os.environ.get("FF_PAGE_SHOTS")
        if not folder:
            return
        for scheme in ("light", "dark"):
            self.scheme(scheme)
            for width, height in (DESK, PHONE):
                self.size(width, height)
                self.js("scrollTo(0, 0)")
                self.driver.get_screenshot_as_file(f"{folder}/{name}-{width}-{scheme}.png")
        self.scheme("light")
        self.size(*DESK)

    def listen(self):
        """What the browser has logged since."""
        self.said += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                place = "/".join(event["params"]["request"]["url"].split("/")[:3])
                if not place.startswith(("chrome:", "data:")):  # the browser's own first page
                    self.asked.add(place)

    def is_clean(self, http):
        """No error, nothing that the policy had to stop, nothing from elsewhere."""
        self.listen()
        assert not self.said, self.said
        assert self.asked == {f"http://{http}"}, self.asked

    def close(self):
        self.driver.quit()


def empty(cluster, page):
    # Without a login there is nothing to see.
    page.open(f"http://{cluster.http}/")
    assert "Log in first" in page.text("body"), page.text("body")
    page.listen()
    page.said.clear()  # which said that it was refused
    link = cluster.link()
    page.open(link)
    assert page.js("return location.pathname") == "/"
    page.live()
    page.has("#no-nodes", "ff schedule agent --scheduler 127.0.0.1:")
    page.has("#queue-none", "ff schedule submit")
    page.has("#chart-note", "No data yet")
    assert page.text("#busy-now").startswith("–"), page.text("#busy-now")
    assert page.js("return document.documentElement.lang") == "en"
    heads = page.js("return [...document.querySelectorAll('h1,h2,h3')].map((e) => e.tagName)")
    assert heads == ["H1", "H2", "H2", "H2", "H3", "H3", "H3"], heads
    page.shot("empty")
    page.fits_a_phone()
    # Of every file that the page has, and what it asks for.
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/overview.json", "/nodes.json"):
        policy, kind = page.js("""return fetch(arguments[0]).then((r) =>
            [r.headers.get("content-security-policy"), r.headers.get("content-type")])""", path)
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy, (path, policy)
        assert kind, path
    page.is_clean(cluster.http)
    # No script but its own can run, however it gets there.
    refused = page.js("""try { document.body.innerHTML = "<b>"; return "" }
                         catch (error) { return error.name }""")
    assert refused == "TypeError", refused


def ten(cluster, page):
    cluster.join(10, zones=2, of_leaf=4)
    done = cluster.submit("short one")
    until("a task is finished", lambda: "succeeded" in cluster.ff("list", "-a"))
    evil = cluster.submit(EVIL, 3, "-p", "30")
    page.open(cluster.link())
    page.live()
    until("it runs", lambda: [r["state"] for r in page.rows("active")] == ["running"])

    row = page.rows("active")[0]
    assert row["task"] == str(evil) and row["nodes"] == "3", row
    assert row["title"].startswith("</script><b>bold</b> \\x1b[31m\\x0d\"'& \N{ROCKET}"), row
    assert page.js("return document.querySelectorAll('main b').length") == \
        page.js("return document.querySelectorAll('.leaf').length")
    assert page.rows("finished")[0]["task"] == str(done)

    # Without a reload: a task that waits, why, and that it is taken back.
    page.js("window.same = true")
    large = cluster.submit("needs more than is free", 8, "-p", "20")
    hopeless = cluster.submit("needs more than there is", 11)
    until("both wait", lambda: len(page.rows("queue")) == 2)
    listed = cluster.ff("list")
    for row in page.rows("queue"):
        until("the words of the list", lambda row=row: {
            r["task"]: r["why"] for r in page.rows("queue")}[row["task"]] != "")
    rows = {row["task"]: row for row in page.rows("queue")}
    assert rows[str(hopeless)]["why"] == "never" and "never" in listed, rows
    assert rows[str(large)]["why"].split(",")[0] in listed, (rows, listed)
    page.has("#busy-now", "30\u00a0%")

    # The nodes: what stands where, in words.
    cluster.silence("n00009")
    cluster.ff("drain", "n00008", "--reason", "bad <i>memory</i>")
    page.has("#legend [data-state=silent]", "silent 1")
    page.has("#legend [data-state=drained]", "drained 1")
    zones = page.js("return [...document.querySelectorAll('.zone h3')].map((e) => e.textContent)")
    assert [zone.split("busy")[0] for zone in zones] == ["zone a0/5 ", "zone b3/5 "], zones
    page.driver.find_elements(By.CSS_SELECTOR, "#map .cell")[8].click()
    page.has("#detail", "n00008 · zone b · leaf leaf0002 · group default · "
                        "drained: bad <i>memory</i>")
    page.driver.find_element(By.ID, "map").send_keys(Keys.ARROW_RIGHT)
    page.has("#detail", "n00009")
    page.has("#detail", "silent")
    page.driver.find_element(By.ID, "map").send_keys(Keys.HOME)
    page.has("#detail", "n00000 · zone a · leaf leaf0000 · group default · free")
    page.driver.find_elements(By.CSS_SELECTOR, "#map .cell.s1")[0].click()
    page.has("#detail", f"n00005 · zone b · leaf leaf0001 · group default · busy · task {evil} (</")
    page.driver.find_element(By.CSS_SELECTOR, "#active button").click()
    page.has("#detail", f"Task {evil} has 3 nodes: n00005 n00006 n00007")
    assert page.js("return document.querySelectorAll('#map .cell.hit').length") == 3
    page.shot("ten")

    page.find("FREE than")
    until("it is found", lambda: [r["task"] for r in page.rows("queue")] == [str(large)])
    page.has("#active-none", "No task matches all of these words.")
    page.find("</script> running")
    until("it is found", lambda: [r["task"] for r in page.rows("active")] == [str(evil)])
    page.find("")
    cluster.ff("stop", str(hopeless))
    until("it is over", lambda: [r["task"] for r in page.rows("queue")] == [str(large)])
    until("use is counted", lambda: page.js("return document.querySelectorAll('.bar').length") > 0)
    assert page.js("return window.same")
    # Nobody looks: nothing is asked for, until somebody does.
    asked = page.js("""Object.defineProperty(document, "hidden", {configurable: true, value: true});
                       poll(); return asking""")
    assert page.js("poll(); return asking") == asked
    page.js("""delete document.hidden;
               document.dispatchEvent(new Event("visibilitychange"))""")
    until("it goes on", lambda: page.js("return asking") > asked + 1)
    page.fits_a_phone()
    page.is_clean(cluster.http)


def many(cluster, page):
    cluster.join(10_000, zones=3, of_leaf=24)
    for i in range(40):
        cluster.submit(f"train {i}", 150 + i)
    for i in range(110):
        cluster.submit(f"waits {i}", 5000)
    page.open(cluster.link())
    page.live()
    until("all nodes are there", lambda: "of 10,000" in page.text("#in-service"))
    until("the map is drawn",
          lambda: page.js("return document.querySelectorAll('#map .cell').length") == 10_000)
    page.has("#queue-more", "and ")
    until("tasks run", lambda: int(page.js(
        "return document.querySelectorAll('#map .cell.s1').length")) > 1000)
    assert len(page.js("return [...document.querySelectorAll('.zone')]")) == 3
    page.driver.find_element(By.ID, "map").send_keys(Keys.END)
    page.has("#detail", "n09999 · zone c · leaf leaf0416")
    page.shot("many")
    page.fits_a_phone()
    page.is_clean(cluster.http)


def restart(cluster, page):
    cluster.join(4)
    page.open(cluster.link())
    page.live()
    page.has("#legend [data-state=free]", "free 4")
    page.js("window.same = true")
    cluster.kill()
    until("it says so", lambda: page.state() == "unreached")
    page.has("#trouble-text", "is unreachable")
    page.has("#trouble-text", "The data below is of ")
    page.has("#legend [data-state=free]", "free 4")  # what was known last
    page.shot("unreached")
    # It is tried again by itself. Logins end with the scheduler: the page says what to do, and goes
    # on after it.
    cluster.start()
    until("it asks for a login", lambda: page.state() == "login")
    page.has("#trouble-text", "newest login link")
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open(cluster.link())
    page.live()
    page.driver.close()
    page.driver.switch_to.window(first)
    page.live()
    assert page.text("#trouble") == ""
    assert page.js("return window.same")
    page.has("#legend [data-state=free]", "free 4")
    # Or at once, when somebody wants it.
    cluster.kill()
    until("it says so", lambda: page.state() == "unreached")
    cluster.start()
    page.js("clearTimeout(timer)")
    page.driver.find_element(By.ID, "retry").click()
    until("it asks for a login", lambda: page.state() == "login")


def main():
    case = {"empty": empty, "ten": ten, "many": many, "restart": restart}[sys.argv[3]]
    if not all(os.path.exists(f"/usr/bin/{one}") for one in ("chromium", "chromedriver")):
        print("chromium or chromium-driver is missing: './bootstrap' installs them")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="ff-page-") as folder:
        page = Page(folder)
        cluster = Cluster(folder)
        try:
            case(cluster, page)
        except BaseException:
            print("scheduler:", cluster.log.text[-4000:])
            page.listen()
            print("browser:", page.said)
            raise
        finally:
            page.close()
            cluster.close()


if __name__ == "__main__":
    FF, NODES = sys.argv[1:3]
    main()
