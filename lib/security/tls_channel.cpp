#include "tls_channel.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"

#include <cordma/detail/base/assert.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace cordma {
namespace {

constexpr std::size_t read_bytes = 8 * 1024;
constexpr std::size_t write_bytes_max = 16 * 1024;  // One record's.
/// With these begins each frame of cordma's handshake, and so a refusal.
constexpr std::array<std::byte, 4> magic{std::byte{'C'}, std::byte{'R'}, std::byte{'M'},
                                         std::byte{'A'}};

constexpr const char* call_of(bool is_open) noexcept {
  return is_open ? "TLS read" : "TLS handshake";
}

[[noreturn]] void refuse(bool is_open, fixed_text<240> why) {
  detail::throw_failure(is_open ? errc::bad_frame : errc::bad_handshake, call_of(is_open), why);
}

}  // namespace

tls_channel::tls_channel(const credentials& used, std::unique_ptr<byte_channel> below)
    : byte_channel{below->executor()}, used_{used}, owned_{std::move(below)}, below_{*owned_} {
  below_.listen(this);
}

tls_channel::tls_channel(const credentials& used, byte_channel& below)
    : byte_channel{below.executor()}, used_{used}, below_{below} {
  below_.listen(this);
}

tls_channel::~tls_channel() { below_.listen(nullptr); }

/// A failure of any kind breaks the channel, which then sends nothing more, not even OpenSSL's
/// alert. A failed step of the handshake leaves only that alert to send. A refusal in the clear
/// thus starts where a record would.
template <class Step>
auto tls_channel::guarded(Step step) {
  try {
    return step();
  } catch (...) {
    broken_ = caught("TLS");
    throw;
  }
}

task<> tls_channel::shake_hands(tls_role role, std::string host) {
  CORDMA_ASSERT(engine_ == nullptr, "TLS shakes hands once");
  engine_ = std::make_unique<tls_engine>(used_, role, host);
  for (bool is_done = false; !is_done;) {
    is_done = guarded([this] { return engine_->shake_hands(); });
    // All before the next step: what a failed step leaves is then its alert, and nothing else.
    while (!guarded([this] { return answer(); })) co_await change();
    while (!is_done && !guarded([this] { return take_in(); })) co_await change();
  }
  is_open_ = true;
}

/// Sends what a step of the handshake leaves; false: there is no room yet. A peer that refused and
/// hung up says why where it can be read, which tells more than that it cannot be written to.
bool tls_channel::answer() {
  try {
    return flush();
  } catch (const error&) {
    while (take_in()) {
    }
    throw;
  }
}

byte_channel* tls_channel::clear() noexcept { return clear_ ? &*clear_ : nullptr; }

std::optional<std::size_t> tls_channel::try_read(std::span<std::byte> into) {
  check_usable();
  if (into.empty()) return 0;
  return guarded([&]() -> std::optional<std::size_t> {
    for (;;) {
      if (const auto n = engine_->read(into)) {
        has_read_ = true;
        return n;
      }
      if (!take_in()) return std::nullopt;
    }
  });
}

std::size_t tls_channel::try_write(std::span<const std::byte> from) {
  check_usable();
  CORDMA_ASSERT(!is_ending_, "TLS is written after its end");
  return guarded([&]() -> std::size_t {
    if (!flush()) return 0;
    const std::size_t n = engine_->write(from.first(std::min(from.size(), write_bytes_max)));
    flush();
    return n;
  });
}

void tls_channel::end_writing() noexcept {
  if (!is_open_ || broken_ || std::exchange(is_ending_, true)) return;
  engine_->close();
  flush_later();
}

/// Sends what waits for room. An error is for whoever reads or writes next.
void tls_channel::flush_later() noexcept {
  if (!is_open_ || broken_) return;
  try {
    flush();
  } catch (...) {
    broken_ = caught("TLS");
  }
}

void tls_channel::on_channel_change() noexcept {
  flush_later();
  if (clear_) clear_->on_change();
  tell_change();
}

/// Returns false if there is no room below.
bool tls_channel::flush() {
  for (auto out = engine_->output(); !out.empty(); out = engine_->output()) {
    const std::size_t n = below_.try_write(out);
    if (n == 0) return false;
    engine_->sent(n);
  }
  if (is_ending_ && !std::exchange(has_ended_, true)) below_.end_writing();
  return true;
}

/// Returns false if there is nothing below.
bool tls_channel::take_in() {
  check_clear();
  std::array<std::byte, read_bytes> bytes;
  const std::optional<std::size_t> n = below_.try_read(bytes);
  if (!n) return false;
  if (*n == 0) {
    detail::throw_failure(errc::disconnected, call_of(is_open_),
                          is_open_ ? "the end came without TLS's close_notify: bytes may be missing"
                                   : "the peer ended the connection before it was known");
  }
  follow(std::span{bytes}.first(*n));
  return true;
}

void tls_channel::follow(std::span<const std::byte> bytes) {
  if (!is_open_) handshake_bytes_ += bytes.size();
  if (handshake_bytes_ > handshake_bytes_max) {
    refuse(is_open_, detail::detail_text("the peer has sent more than %zu bytes and is not known "
                                         "yet: a shorter chain of certificates?",
                                         handshake_bytes_max));
  }
  if (clear_bytes_.empty()) {
    const auto [found, records] = watch_.follow(bytes);
    if (found == record_watch::finding::not_tls) {
      refuse(is_open_, "what begins like a TLS record has no version 3.x: another protocol?");
    }
    if (found == record_watch::finding::too_long) {
      refuse(is_open_, detail::detail_text("a TLS record of more than %zu bytes",
                                           record_watch::body_bytes_max));
    }
    engine_->feed(bytes.first(records));
    bytes = bytes.subspan(records);
  }
  clear_bytes_.insert(clear_bytes_.end(), bytes.begin(), bytes.end());
}

/// Judges what came in place of a record, once the records before it have been read.
void tls_channel::check_clear() {
  if (clear_bytes_.empty()) return;
  const auto first = std::span{clear_bytes_}.first(std::min(clear_bytes_.size(), magic.size()));
  if (has_read_ || !std::equal(first.begin(), first.end(), magic.begin())) {
    std::array<unsigned, magic.size()> shown{};
    std::ranges::transform(first, shown.begin(),
                           [](std::byte b) { return std::to_integer<unsigned>(b); });
    refuse(is_open_, detail::detail_text(
                         "the bytes %02x %02x %02x %02x (%zu came) where a TLS record is due, 14 "
                         "to 17 first; a peer without credentials sends 43 52 4d 41",
                         shown[0], shown[1], shown[2], shown[3], first.size()));
  }
  if (first.size() < magic.size()) return;
  clear_.emplace(below_, std::move(clear_bytes_));
  detail::throw_failure(errc::refused, call_of(is_open_), "the peer refused, in the clear");
}

void tls_channel::check_usable() const {
  if (broken_) detail::throw_error(*broken_);
  if (!is_open_) {
    detail::throw_failure(errc::closed, "TLS", "the handshake has not succeeded");
  }
}

std::optional<std::size_t> tls_channel::clear_channel::try_read(std::span<std::byte> into) {
  if (first_.empty()) return below_.try_read(into);
  const std::size_t n = std::min(first_.size(), into.size());
  std::copy_n(first_.begin(), n, into.begin());
  first_.erase(first_.begin(), first_.begin() + std::ptrdiff_t(n));
  return n;
}

}  // namespace cordma
