// Certificates for tests: an authority, what it issues, and the files that TlsContext loads.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>

#include "platform/base/check.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/net/tls.h"

namespace ff::net {

// One certificate with its key, and the right to issue others.
class TestCertificate {
 public:
  struct Wish {
    std::string name = "test";
    std::string hosts = {};  // as OpenSSL writes them: "DNS:localhost,IP:127.0.0.1"; empty: none
    bool authority = false;
    long from_seconds = -3600;  // from now
    long to_seconds = 3600;
  };

  // Issued by itself.
  explicit TestCertificate(const Wish& wish) : TestCertificate(wish, nullptr) {}
  TestCertificate(const Wish& wish, const TestCertificate* issuer)
      : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), cert_(X509_new(), X509_free) {
    FF_CHECK(key_ != nullptr && cert_ != nullptr);
    static long serial = 1000;
    X509* const cert = cert_.get();
    X509* const by = issuer != nullptr ? issuer->cert_.get() : cert;
    FF_CHECK(X509_set_version(cert, 2) == 1);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), wish.from_seconds);
    X509_gmtime_adj(X509_getm_notAfter(cert), wish.to_seconds);
    X509_set_pubkey(cert, key_.get());
    const auto* name = reinterpret_cast<const unsigned char*>(wish.name.c_str());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(by));
    extend(by, NID_basic_constraints, wish.authority ? "critical,CA:TRUE" : "CA:FALSE");
    if (!wish.hosts.empty()) extend(by, NID_subject_alt_name, wish.hosts);
    EVP_PKEY* const signer = issuer != nullptr ? issuer->key_.get() : key_.get();
    FF_CHECK(X509_sign(cert, signer, EVP_sha256()) > 0);
  }
  TestCertificate issue(const Wish& wish) const { return {wish, this}; }

  std::string pem() const {
    return text([&](BIO* out) { return PEM_write_bio_X509(out, cert_.get()); });
  }
  // Encrypted when there is a phrase.
  std::string key_pem(const std::string& phrase = "") const {
    return text([&](BIO* out) {
      return PEM_write_bio_PKCS8PrivateKey(
          out, key_.get(), phrase.empty() ? nullptr : EVP_aes_256_cbc(), phrase.c_str(),
          static_cast<int>(phrase.size()), nullptr, nullptr);
    });
  }

 private:
  void extend(X509* issuer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, cert_.get(), nullptr, nullptr, 0);
    X509_EXTENSION* const part = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    FF_CHECK(part != nullptr && X509_add_ext(cert_.get(), part, -1) == 1);
    X509_EXTENSION_free(part);
  }
  template <class Write>
  static std::string text(Write write) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> out(BIO_new(BIO_s_mem()), BIO_free_all);
    FF_CHECK(write(out.get()) == 1);
    char* data = nullptr;
    const long size = BIO_get_mem_data(out.get(), &data);
    return {data, static_cast<size_t>(size)};
  }

  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_;
  std::unique_ptr<X509, decltype(&X509_free)> cert_;
};

// A directory of PEM files.
class TestFiles {
 public:
  // The path; the file gets mode 0600.
  std::string put(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name) << content;
    FF_CHECK(::chmod((dir_ / name).c_str(), 0600) == 0);
    return dir_ / name;
  }
  // `chain` follows the certificate in its file.
  TlsFiles put(const TestCertificate& own, const std::string& ca, const std::string& chain = "") {
    const std::string number = std::to_string(++count_);
    return {put(number + ".crt", own.pem() + chain), put(number + ".key", own.key_pem()),
            put(number + ".ca", ca)};
  }
  Result<std::shared_ptr<const TlsContext>> load(const TlsFiles& files) {
    return TlsContext::make(disk_, files);
  }
  std::shared_ptr<const TlsContext> context(const TestCertificate& own, const std::string& ca,
                                            const std::string& chain = "") {
    auto made = load(put(own, ca, chain));
    FF_CHECK(made.ok());
    return *made;
  }

 private:
  io::SystemDisk disk_;
  io::TempDir dir_;
  int count_ = 0;
};

}  // namespace ff::net
