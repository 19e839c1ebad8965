#include <cordma/security/credentials.hpp>

#include "base/failures.hpp"
#include "credentials_contents.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cordma {
namespace {

constexpr std::size_t id_bytes_max = 64;
constexpr std::size_t secret_bytes_min = 16;
constexpr std::size_t secret_bytes_max = 64;

void check(const credentials::psk_key& key) {
  const bool is_printable =
      std::ranges::all_of(key.id, [](char c) { return c >= ' ' && c <= '~'; });
  if (key.id.empty() || key.id.size() > id_bytes_max || !is_printable) {
    detail::throw_failure(
        errc::limit_exceeded, "credentials::psk",
        is_printable ? detail::detail_text("the id '%.80s' has %zu characters: take 1 to %zu",
                                           key.id.c_str(), key.id.size(), id_bytes_max)
                     : "the id has a character that does not print: take ASCII's, 20 to 7e");
  }
  if (key.secret.size() < secret_bytes_min || key.secret.size() > secret_bytes_max) {
    detail::throw_failure(
        errc::limit_exceeded, "credentials::psk",
        detail::detail_text("the secret of the key '%s' has %zu bytes: take %zu to %zu, random, "
                            "32 if nothing else decides",
                            key.id.c_str(), key.secret.size(), secret_bytes_min, secret_bytes_max));
  }
}

std::unique_ptr<const credentials::contents> keep(std::vector<credentials::psk_key> keys) {
  for (const credentials::psk_key& key : keys) check(key);
  if (keys.size() == 2 && keys[0].id == keys[1].id) {
    detail::throw_errno(EINVAL, "credentials::psk",
                        detail::detail_text("both keys have the id '%s': a peer names the key that "
                                            "it uses, so give each an id of its own",
                                            keys[0].id.c_str()));
  }
  auto made = std::make_unique<credentials::contents>();
  made->kind = authentication::psk;
  made->keys = std::move(keys);
  make_tls_context(*made);
  return made;
}

}  // namespace

credentials::psk_key::psk_key(std::string key_id, std::vector<std::byte> key_secret) noexcept
    : id{std::move(key_id)}, secret{std::move(key_secret)} {}

credentials::psk_key& credentials::psk_key::operator=(psk_key other) noexcept {
  // `other` takes the old key, and wipes it.
  std::swap(id, other.id);
  std::swap(secret, other.secret);
  return *this;
}

credentials::psk_key::~psk_key() {
  if (!secret.empty()) ::explicit_bzero(secret.data(), secret.size());
}

credentials credentials::psk(psk_key key) {
  std::vector<psk_key> keys;
  keys.reserve(2);  // With the random one: none is copied.
  keys.push_back(std::move(key));
  return credentials{keep(std::move(keys))};
}

credentials credentials::psk(psk_key key, psk_key other) {
  std::vector<psk_key> keys;
  keys.reserve(3);
  keys.push_back(std::move(key));
  keys.push_back(std::move(other));
  return credentials{keep(std::move(keys))};
}

credentials credentials::certificates(const certificate_files& files) {
  auto made = std::make_unique<contents>();
  made->kind = authentication::certificate;
  made->files = files;
  make_tls_context(*made);
  return credentials{std::move(made)};
}

credentials::credentials(std::unique_ptr<const contents> made) noexcept
    : contents_{std::move(made)} {}
credentials::credentials(credentials&&) noexcept = default;
credentials& credentials::operator=(credentials&&) noexcept = default;
credentials::~credentials() = default;

authentication credentials::kind() const noexcept { return contents_->kind; }

}  // namespace cordma
