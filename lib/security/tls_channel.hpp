#pragma once

#include "io/byte_channel.hpp"
#include "record_watch.hpp"
#include "tls_engine.hpp"

#include <cordma/base/error.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cordma {

/// TLS 1.3 over another channel: both sides know each other, and what they read is what the other
/// wrote. \thread the executor's.
///
/// A side whose handshake fails sends no alert. The caller refuses in the clear, by `below()`, with
/// one text for all reasons. The other side's caller reads that refusal:
///
///     auto outcome = co_await as_result(tls.shake_hands(tls_role::client, host));
///     if (byte_channel* clear = tls.clear()) { … read the peer's frame from *clear … }
///     std::move(outcome).value();
///
/// | state | what happens | next state |
/// | --- | --- | --- |
/// | new | `shake_hands` | shaking hands |
/// | shaking hands | the peer has proved who it is | open |
/// | open | the peer's close_notify | open; reads give 0 |
/// | shaking hands, open | anything fails | broken: reads and writes throw the same error |
/// | shaking hands, open before data | the peer speaks in the clear | broken, with `clear()` |
class tls_channel final : public byte_channel, private byte_channel::listener {
 public:
  /// The limit of a peer's bytes before its handshake has succeeded.
  static constexpr std::size_t handshake_bytes_max = 64 * 1024;

  /// `used` outlives the channel. The second form only borrows `below`, which outlives it, too.
  /// Meanwhile nobody else listens to `below`.
  tls_channel(const credentials& used, std::unique_ptr<byte_channel> below);
  tls_channel(const credentials& used, byte_channel& below);
  ~tls_channel() override;

  /// Makes both sides known to each other; once, and before anything else. `host`: the name or
  /// address that a client connects to, which the server's certificate must have. The caller
  /// limits the time. A task that was stopped leaves the channel broken.
  /// \errors errc::not_authenticated, errc::incompatible_peer, errc::bad_handshake: the detail says
  ///   why. errc::disconnected: the peer's bytes ended. errc::refused: see `clear`. Those of
  ///   `below`. EINVAL: certificates, and neither `host` nor certificate_files::peer_name is set.
  task<> shake_hands(tls_role role, std::string host);

  /// Returns who the peer is. Only after the handshake.
  [[nodiscard]] const identity& peer() const noexcept { return engine_->peer(); }
  /// A secret of this connection, the same on both sides, for a label and a context. Only after the
  /// handshake.
  [[nodiscard]] tls_engine::exported export_secret(std::string_view label,
                                                   std::span<const std::byte> context) const {
    return engine_->export_secret(label, context);
  }

  /// The peer's bytes, from "CRMA" on, if those came instead of a TLS record; else null. What was
  /// read already comes first. Whoever is on the path could have sent them.
  [[nodiscard]] byte_channel* clear() noexcept;
  [[nodiscard]] byte_channel& below() noexcept { return below_; }

  /// \errors errc::bad_frame: not what the peer sent. errc::disconnected: the end came without
  ///   close_notify, so bytes may be missing. Those of `shake_hands`: the peer learns late that it
  ///   does not like this side.
  std::optional<std::size_t> try_read(std::span<std::byte> into) override;
  /// The channel keeps bytes that it has taken until there is room below: at most one record.
  std::size_t try_write(std::span<const std::byte> from) override;
  void end_writing() noexcept override;
  void hang_up() noexcept override { below_.hang_up(); }
  [[nodiscard]] bool ends_with_peer() const noexcept override { return below_.ends_with_peer(); }
  void keep_alive(time_span interval, unsigned probes) override {
    below_.keep_alive(interval, probes);
  }
  [[nodiscard]] bool finds_dead_hosts() const noexcept override {
    return below_.finds_dead_hosts();
  }

 private:
  /// Bytes that were read of a peer that speaks in the clear, then further ones.
  class clear_channel final : public byte_channel {
   public:
    clear_channel(byte_channel& below, std::vector<std::byte> first)
        : byte_channel{below.executor()}, below_{below}, first_{std::move(first)} {}
    std::optional<std::size_t> try_read(std::span<std::byte> into) override;
    std::size_t try_write(std::span<const std::byte> from) override {
      return below_.try_write(from);
    }
    void end_writing() noexcept override { below_.end_writing(); }
    void on_change() noexcept { tell_change(); }

   private:
    byte_channel& below_;
    std::vector<std::byte> first_;
  };

  void on_channel_change() noexcept override;
  bool answer();
  bool flush();
  void flush_later() noexcept;
  bool take_in();
  void follow(std::span<const std::byte> bytes);
  void check_clear();
  void check_usable() const;
  template <class Step>
  auto guarded(Step step);

  const credentials& used_;
  std::unique_ptr<byte_channel> owned_;
  byte_channel& below_;
  std::unique_ptr<tls_engine> engine_;
  record_watch watch_;
  std::size_t handshake_bytes_ = 0;
  std::vector<std::byte> clear_bytes_;  // From where a record is due, and none comes.
  std::optional<clear_channel> clear_;
  std::optional<failure> broken_;
  bool is_open_ = false;
  bool has_read_ = false;  // The peer's data: from then on nothing in the clear is a refusal.
  bool is_ending_ = false;
  bool has_ended_ = false;
};

}  // namespace cordma
