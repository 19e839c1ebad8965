#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace cordma {

namespace detail {
class message_channel;
class stream_channel;
struct arrived_message;

/// What a message says, wherever it lies.
struct message_content {
  /// What came beside its bytes: immediate data, or the key of a window of ours that it has ended.
  enum class word_kind : std::uint8_t { none, immediate, invalidated };

  std::span<const std::byte> bytes{};
  std::uint32_t word = 0;
  word_kind word_is = word_kind::none;
  bool is_large = false;

  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return word_is == word_kind::immediate ? std::optional{word} : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint32_t> invalidated() const noexcept {
    return word_is == word_kind::invalidated ? std::optional{word} : std::nullopt;
  }
};

/// A message in memory of its own.
struct large_message : message_content, frame_cache::recycled {
  explicit large_message(local_mr&& mr) noexcept
      : message_content{.bytes = mr.bytes(), .is_large = true}, memory{std::move(mr)} {}
  local_mr memory;
};

/// Goes with its last reference.
class counted_channel {
 public:
  counted_channel(const counted_channel&) = delete;
  counted_channel& operator=(const counted_channel&) = delete;
  void retain() noexcept { ++references_; }
  void release() noexcept {
    if (--references_ == 0) [[unlikely]]
      delete this;
  }

 protected:
  counted_channel() noexcept = default;
  virtual ~counted_channel() = default;

 private:
  unsigned references_ = 1;
};

/// Keeps a channel: its stream, its tasks and its messages do.
class channel_ref {
 public:
  channel_ref() noexcept = default;
  explicit channel_ref(message_channel& c) noexcept;
  channel_ref(channel_ref&& other) noexcept : channel_{std::exchange(other.channel_, nullptr)} {}
  channel_ref& operator=(channel_ref&& other) noexcept {
    const channel_ref gone = std::move(*this);
    channel_ = std::exchange(other.channel_, nullptr);
    return *this;
  }
  ~channel_ref() {
    if (channel_ != nullptr) channel_->release();
  }
  message_channel* operator->() const noexcept { return get(); }
  [[nodiscard]] message_channel* get() const noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return channel_ != nullptr; }

 private:
  counted_channel* channel_ = nullptr;
};
}  // namespace detail

/// What one end of a message stream takes. The other end keeps to it, and may have its own.
struct stream_options {
  /// Messages that the peer may have sent and nobody has dropped: 8 to the connection's
  /// `recv_wr_max`. Each has a buffer of its own; four of them only carry credits and the like.
  unsigned depth = 64;
  /// Of each: what is longer goes by rendezvous. 64 to 1 MiB.
  std::size_t buffer_bytes = 4096;
  /// Of the longest message that is taken: `buffer_bytes` to 1 GiB.
  std::size_t message_bytes_max = std::size_t{64} << 20;
  /// Large messages that are fetched before anybody asks for them: 1 to 64. So many times
  /// `message_bytes_max` is all the memory that a peer can make this side allocate.
  unsigned large_ahead = 2;
  /// How long `send` waits for the peer to make its end of the stream. A call has its own deadline.
  std::chrono::milliseconds open_timeout{10'000};
};
/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const stream_options& options);

struct stream_counters {
  std::uint64_t sent = 0;            ///< Messages, large ones included.
  std::uint64_t received = 0;        ///< The same.
  std::uint64_t large_sent = 0;      ///< By rendezvous.
  std::uint64_t large_received = 0;  ///< The same.
  std::uint64_t credit_frames = 0;   ///< Sent only to tell credits.
  std::uint64_t credit_waits = 0;    ///< Messages that waited for the peer, or for the send queue.
};

/// A message that arrived, in the receive buffer of its stream, or, a large one, in memory of its
/// own. Nobody else can change it. Dropping it gives the buffer to the next message: a stream whose
/// messages are all kept gets no more. Move-only; may outlive stream and connection, but not the
/// runtime. \thread the executor's.
class stream_message {
 public:
  stream_message() noexcept = default;
  stream_message(stream_message&& other) noexcept
      : channel_{std::move(other.channel_)}, content_{std::exchange(other.content_, nullptr)} {}
  stream_message& operator=(stream_message&& other) noexcept {
    if (this == &other) return *this;
    reset();
    channel_ = std::move(other.channel_);
    content_ = std::exchange(other.content_, nullptr);
    return *this;
  }
  ~stream_message() { reset(); }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return content_ != nullptr ? content_->bytes : std::span<const std::byte>{};
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes().size(); }
  /// The same as registered memory, to be sent on or written elsewhere without a copy.
  [[nodiscard]] const_local_mr_slice slice() const noexcept;
  /// None of a message that was dropped or moved away.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    return content_ != nullptr ? content_->immediate() : std::nullopt;
  }
  /// Whether it came by rendezvous.
  [[nodiscard]] bool is_large() const noexcept { return content_ != nullptr && content_->is_large; }
  void reset() noexcept {
    if (content_ != nullptr) give_back();
  }

 private:
  friend class detail::message_channel;
  stream_message(detail::channel_ref channel, detail::message_content& content) noexcept
      : channel_{std::move(channel)}, content_{&content} {}
  void give_back() noexcept;

  detail::channel_ref channel_;  // Null: nobody wants it back.
  detail::message_content* content_ = nullptr;
};

/// Messages over a connection, in order, each arriving once and whole. Both ends make one; neither
/// sends before the other has posted its receives, nor more than it has room for: what goes beyond
/// waits in `send`, so that no receiver is ever found not ready. The connection's own send, recv
/// and immediates are the stream's from then on, and refused to others (errc::refused); its
/// one-sided operations and its agent are free.
///
/// A message that is longer than the peer's buffers is announced, and lent for reading
/// (docs/remote-memory.md); in its turn the receiver reads it into memory of its own, all without
/// a copy. docs/rpc-protocol.md has the bytes. \thread the executor's.
class message_stream {
 public:
  class receive_op;

  message_stream() noexcept = default;
  /// Takes the connection, on which nothing was sent or received. Tells the peer at once.
  /// \errors  errc::not_supported: one of the two sides has no agent. errc::limit_exceeded: an
  ///   option; the connection's `inline_max` is below 40, or its `send_sge_max` below 2. What the
  ///   allocator throws.
  explicit message_stream(cordma::connection conn, const stream_options& options = {});

  /// Ends when the bytes have been taken over: at once while the peer has room. What is longer than
  /// the peer's buffers is copied into registered memory, and ends when the peer has it: a program
  /// that takes no messages keeps it waiting, as it does all others (`with_timeout`).
  /// Stopped, it was sent or it was not; a large one may even arrive.
  /// \errors  errc::wrong_length: longer than the peer takes; both numbers are named.
  ///   errc::timed_out: the peer made no stream within `open_timeout`. errc::disconnected and
  ///   others of a lost connection; what the allocator throws. Of a large one: errc::refused when
  ///   the peer has no memory for it; errc::not_supported, errc::limit_exceeded of `send_local_mr`.
  /// \cost  no allocation once warm; one SEND.
  task<> send(std::span<const std::byte> bytes, std::optional<std::uint32_t> immediate = {});
  /// The same for registered memory, of `connection::memory()`: a large message is not copied. It
  /// must not change until this has ended; when that was by a stop, until the peer's access has
  /// ended as well (`connection().lending().open`), or what arrives may be torn. Memory that stands
  /// is refused when it is large: nobody could keep it.
  task<> send(const_local_mr_slice bytes, std::optional<std::uint32_t> immediate = {});

  /// The next message. A stopped wait loses nothing.
  /// \errors  errc::disconnected and others of a lost connection, once what came before is taken.
  receive_op receive() noexcept;

  /// Lets what was sent arrive, and closes the connection (`connection::close`).
  task<> close() { return conn_.close(); }
  [[nodiscard]] const stream_counters& counters() const noexcept;
  /// For everything else: remote memory, one-sided operations.
  [[nodiscard]] cordma::connection& connection() noexcept { return conn_; }
  [[nodiscard]] explicit operator bool() const noexcept { return bool(conn_); }

 private:
  [[nodiscard]] detail::stream_channel& channel() const noexcept;

  cordma::connection conn_;
  detail::channel_ref channel_;
};

/// Waits for the next message. Whatever becomes of the wait, the message goes to the next who asks.
class [[nodiscard]] message_stream::receive_op final
    : public operation_base<message_stream::receive_op> {
 public:
  using value_type = stream_message;

  bool start(waiter& w, const environment& env) noexcept;
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept { return acquire_.failed(); }
  stream_message take() { return take_result().value(); }
  result<stream_message> take_result() noexcept;

 private:
  friend class message_stream;
  explicit receive_op(detail::stream_channel& channel) noexcept;
  detail::channel_ref channel_;
  semaphore::acquire_op acquire_;
};

}  // namespace cordma
