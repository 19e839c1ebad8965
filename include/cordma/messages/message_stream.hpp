#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/messages/message_content.hpp>
#include <cordma/detail/messages/pending_fill.hpp>
#include <cordma/detail/messages/receive_message_op.hpp>
#include <cordma/memory/slice.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cordma {

/// The limits of one end of a message stream. The other end keeps to them, and has options of its
/// own.
struct stream_options {
  /// Receive buffers: 8 to the connection's `recv_wr_max`. Each holds a message until the program
  /// drops that. Four are reserved for frames of the protocol.
  unsigned depth = 64;
  /// Bytes per receive buffer: longer messages go by rendezvous. 64 to 1 MiB.
  std::size_t buffer_bytes = 4096;
  /// Bytes of the longest message that is taken: `buffer_bytes` to 1 GiB.
  std::size_t message_bytes_max = std::size_t{64} << 20;
  /// Large messages that are fetched before anybody asks for them: 0 to 64, and for calls at least
  /// 1. The peer can make this side allocate at most `large_ahead` times `message_bytes_max`, and
  /// once more while a task is in `receive`. With 0, `receive_into` copies no large message that
  /// no task in `receive` had asked for.
  unsigned large_ahead = 2;
  /// How long `send` waits for the peer to make its end of the stream. A call has its own deadline.
  time_span open_timeout = std::chrono::seconds{10};
};

struct stream_counters {
  std::uint64_t sent = 0;            ///< messages, with the large ones
  std::uint64_t received = 0;        ///< messages, with the large ones
  std::uint64_t large_sent = 0;      ///< messages that went by rendezvous
  std::uint64_t large_received = 0;  ///< messages that came by rendezvous
  std::uint64_t credit_frames = 0;   ///< frames that were sent only to tell credits
  std::uint64_t credit_waits = 0;    ///< messages that waited for the peer, or for the send queue
};

/// A message that arrived: in a receive buffer of its stream, or, when it is large, in memory of
/// its own. Nobody else can change it. Dropping it frees the buffer for another message: a stream
/// whose messages are all kept gets no more. Move-only. May outlive stream and connection, but not
/// the runtime. \thread the executor's.
class CORDMA_EXPORT stream_message {
 public:
  stream_message() noexcept = default;
  /// Made by `channel`, which gets the message back; empty: nobody wants it back.
  stream_message(detail::channel_ref channel, detail::message_content& content) noexcept
      : content_{&content, {std::move(channel)}} {}

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return content_ ? content_->bytes : std::span<const std::byte>{};
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes().size(); }
  /// The bytes as registered memory, to be sent on or written elsewhere without a copy.
  [[nodiscard]] const_local_mr_slice slice() const noexcept;
  /// Empty for a message that came without, or was dropped or moved away.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return content_ ? content_->immediate() : std::nullopt;
  }
  /// True if it came by rendezvous.
  [[nodiscard]] bool is_large() const noexcept { return content_ && content_->is_large; }
  void reset() noexcept { content_.reset(); }

 private:
  struct CORDMA_EXPORT give_back {
    void operator()(detail::message_content* content) noexcept;
    detail::channel_ref channel;
  };
  std::unique_ptr<detail::message_content, give_back> content_;
};

/// Messages over a connection, in order, each arriving once and whole. Both ends make one. A stream
/// sends only as much as the peer has posted receives for. Further messages wait in `send`, so that
/// no receiver is ever found not ready. The stream takes over the connection's send, recv and
/// immediates, and refuses them to others (errc::refused); one-sided operations and the agent stay
/// free.
///
/// A message that is longer than the peer's buffers is announced, and lent for reading
/// (docs/remote-memory.md). The receiver reads it into memory of its own, without another copy.
/// docs/rpc-protocol.md has the bytes. Move-only; dropping a stream drops its connection.
/// \thread the executor's.
class CORDMA_EXPORT message_stream {
 public:
  message_stream() noexcept = default;
  /// Takes a connection on which nothing was sent or received. Tells the peer at once.
  /// \errors  errc::not_supported: one of the two sides has no agent. errc::limit_exceeded: an
  ///   option; the connection's `inline_max` is below 40, or its `send_sge_max` below 2. What the
  ///   allocator throws.
  explicit message_stream(cordma::connection conn, const stream_options& options = {});

  /// Sends a message. Ends when the bytes may change: at once while the peer has room. A message
  /// that is longer than the peer's buffers is copied into registered memory, and ends when the
  /// peer has it. A peer that takes no messages keeps all of them waiting (`with_timeout`). A send
  /// that is stopped may have sent its message.
  /// \errors  errc::wrong_length: longer than the peer takes; both numbers are named.
  ///   errc::timed_out: the peer made no stream within `open_timeout`. errc::disconnected and
  ///   others of a lost connection; what the allocator throws. For a large one: errc::refused when
  ///   the peer has no memory for it; errc::not_supported, errc::limit_exceeded of `send_local_mr`.
  /// \cost  no allocation once warm; one SEND.
  task<> send(std::span<const std::byte> bytes, std::optional<std::uint32_t> immediate = {});
  /// Sends registered memory of `connection::memory()`: a large message is not copied. The bytes
  /// must not change until this has ended. After a stop, they must not change until the peer's
  /// access has ended as well (`connection().lending().open`), or a torn message may arrive.
  /// A large message in memory that stands is refused: nobody could hold it.
  task<> send(const_local_mr_slice bytes, std::optional<std::uint32_t> immediate = {});

  /// Waits for the next message. A wait that is stopped loses no message.
  /// \errors  errc::disconnected and others of a lost connection, once what came before is taken.
  [[nodiscard]] detail::receive_message_op receive() noexcept;

  /// The next message, before it is taken: `size_bytes`, `immediate`, and whether it `is_large`.
  using arrival = detail::message_arrival;
  /// Receives the next message into memory of `connection::memory()` that `where` gives for it.
  /// There must be room for `size_bytes`; what is behind them stays as it is. A large message is
  /// read there by RDMA, unless it was fetched ahead (`large_ahead`). Others are copied. Tasks are
  /// served in the order in which they asked, be it here or by `receive`.
  ///
  /// `where` runs in a task, once the message is known. If the sender withdraws the message
  /// meanwhile, `where` runs again for the next one. Whatever else ends the wait early leaves the
  /// message to the next that asks: a stop, an exception of `where`, memory that does not fit. A
  /// READ in flight then goes on. Its memory stays, and the bytes are undefined, until a later
  /// READ of this connection has ended.
  /// \errors  what `where` throws. errc::wrong_length: too little room; both numbers are named.
  ///   errc::stale_slice; errc::wrong_protection_domain; errc::access_denied: no local_write. As
  ///   `receive`.
  /// \cost  no allocation once warm.
  template <class Where>
    requires(std::is_invocable_r_v<local_mr_slice, Where&, const arrival&>)
  [[nodiscard]] task<arrival> receive_into(Where where) {
    CORDMA_ASSERT(bool(channel_), "used an empty stream");
    return detail::receive_into(channel_, std::move(where));
  }

  /// Lets the messages that were sent arrive, and closes the connection (`connection::close`).
  task<> close();
  [[nodiscard]] const stream_counters& counters() const noexcept;
  /// For everything else: remote memory, one-sided operations. The connection moves with the
  /// stream.
  [[nodiscard]] cordma::connection& connection() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return bool(channel_); }

 private:
  [[nodiscard]] detail::stream_channel& channel() const noexcept;

  detail::counted_ref<detail::stream_channel> channel_;
  cordma::connection conn_;
};

}  // namespace cordma
