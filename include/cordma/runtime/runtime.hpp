#pragma once

#include <cordma/base/event_log.hpp>
#include <cordma/base/unique_fd.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/connection/prepared_connection.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/runtime/metrics.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <concepts>
#include <memory>
#include <string_view>

namespace cordma {

namespace detail {
class runtime_state;
}

/// The runtime takes device, port and options of a fabric that are unset here from the
/// environment: CORDMA_DEVICE, CORDMA_PORT and others (docs/connecting.md). With CORDMA_METRICS the
/// runtime serves its metrics (docs/metrics.md).
struct runtime_options {
  /// Name of a device in `verbs::list_devices`; empty: the first with an ACTIVE port.
  fixed_text<64> device{};
  std::uint8_t port = 0;  ///< 0: the first ACTIVE one.
  std::optional<std::uint32_t> gid_index{};
  /// Each completion queue's. When queue pairs have reserved all CQEs, the runtime makes another.
  completion_queue_options cq{};
  executor_options executor{};
  mr_allocator_options memory{};
  /// Makes queue pairs, completion queues and shared receive queues in a thread domain
  /// (ibv_alloc_td(3)), whose driver may leave locks out. Where the device has none, they are made
  /// as without: `protection_domain().queues()` tells which.
  bool thread_domain = false;
  /// The log of who connects, is refused, is lost or has memory, and why.
  event_log log{};
  /// Defaults of `connect` and `listen`; `port` and `gid_index` above replace theirs when set.
  connection_options connections{};
};

/// A runtime has what a program needs to use one device from one thread. It destroys executor,
/// device, protection domain and completion queues in the right order. Its connections, listeners
/// and memory must be destroyed first. The destructor ends their closing without waiting.
/// \thread the one that first calls `run`.
class CORDMA_EXPORT runtime final {
 public:
  /// \errors  errc::no_device (lists the devices there are); EACCES and others of opening the
  ///   device; errc::limit_exceeded: an option above the device's limit; names both. EINVAL: a
  ///   wrong variable of the environment; names its text. See also `executor`.
  explicit runtime(runtime_options&& options = {});
  /// Gives a one-line compile error for options that are not an rvalue.
  template <std::same_as<runtime_options> Options>
  explicit runtime(const Options&) : runtime{runtime_options{}} {
    static_assert(sizeof(Options) == 0,
                  "options own a reactor and are not copied: runtime rt{std::move(options)}");
  }
  runtime(runtime&&) = delete;
  ~runtime();

  /// Runs an operation or task to its end, and until connections dropped meanwhile are closed.
  template <operation Op>
  value_of<Op> run(Op&& op) {
    return executor().run(std::forward<Op>(op));
  }

  /// Connects to `server`; `changes` replaces some of `connection_defaults()`. The server's program
  /// may not have accepted yet: a SEND then meets no receive, and breaks the connection after
  /// `rnr_retry` retries (docs/errors.md). `server.host` may be a name: the resolver then blocks
  /// the thread.
  /// \errors  errc::timed_out after `connect_timeout`; ECONNREFUSED and others of connect(2): the
  ///   detail names the server; errc::bad_handshake, errc::incompatible_peer, errc::refused;
  ///   errc::bad_frame: the peer's agent broke its protocol; what the verbs throw.
  ///   errc::limit_exceeded: an option. A failure leaves nothing behind.
  [[nodiscard]] task<connection> connect(endpoint server, const connection_changes& changes = {});
  /// \errors  EINVAL, thrown by the call itself: no number of a port.
  [[nodiscard]] task<connection> connect(std::string_view host, std::integral auto port,
                                         const connection_changes& changes = {}) {
    return connect(endpoint::of(host, port), changes);
  }
  /// Connects over a stream socket that is connected already: a Unix one, a socketpair's, one of
  /// the program's own protocol. The peer calls `accept`. \errors as `connect`; ENOTSOCK.
  [[nodiscard]] task<connection> connect(unique_fd stream, const connection_changes& changes = {});
  /// Does the server's side of `connect`, on a stream socket that was accepted elsewhere: by
  /// another thread, or by the program's parent. A client whose handshake fails is told why.
  /// \errors  errc::timed_out after `listener_options`' default `handshake_timeout`;
  ///   errc::disconnected, errc::bad_handshake, errc::incompatible_peer; errc::limit_exceeded: an
  ///   option; what the verbs throw. A failure leaves nothing behind.
  [[nodiscard]] task<connection> accept(unique_fd stream, admission admit = {},
                                        const connection_changes& changes = {});
  /// Makes one side of a connection whose information the program moves itself.
  [[nodiscard]] prepared_connection prepare_connection(const connection_changes& changes = {});
  /// Listens on `local`: `listener`. \errors as its constructor.
  [[nodiscard]] listener listen(const endpoint& local = {}, const listener_options& limits = {},
                                const connection_changes& changes = {});

  /// Opens a socket of datagrams, which the runtime outlives.
  /// \errors  errc::limit_exceeded: an option; errc::no_gid; errc::not_supported: an iWARP device;
  ///   what the verbs throw.
  [[nodiscard]] datagram_socket open_datagram(const datagram_options& options = {});

  /// Returns the allocator of the `memory` options, for this device; without remote access unless
  /// they ask for it. Allocated memory must be freed before the runtime. \thread any.
  [[nodiscard]] mr_allocator& memory() noexcept;
  /// Returns the allocator of memory with other access, in chunks of its own. The first call makes
  /// the allocator. Every peer of this runtime that knows or guesses a key can reach its memory
  /// with remote access. \thread the runtime's.
  [[nodiscard]] mr_allocator& memory(verbs::access access);
  /// Makes receive buffers for many connections (`connection_options::receives_from`), which live
  /// as long as the runtime. \errors  as `shared_receives`. \cost  the registered memory of all
  /// buffers, allocated now.
  [[nodiscard]] shared_receives& share_receives(const shared_receives_options& options = {});
  /// Opens an XRC domain, which lives as long as the runtime: that of the file at `path`, which
  /// processes share, or one of this runtime's own. \errors  as `verbs::xrc_domain`.
  [[nodiscard]] verbs::xrc_domain& open_xrc_domain(std::string_view path);
  [[nodiscard]] verbs::xrc_domain& open_xrc_domain();
  [[nodiscard]] cordma::executor& executor() noexcept;
  [[nodiscard]] verbs::context& context() noexcept;
  [[nodiscard]] verbs::protection_domain& protection_domain() noexcept;
  [[nodiscard]] std::string_view device_name() const noexcept;
  [[nodiscard]] const connection_options& connection_defaults() const noexcept;
  [[nodiscard]] connection_resources resources() noexcept;

  /// Gives the device's next asynchronous event (ibv_get_async_event(3)), after the library has
  /// ended what the event breaks. At most 64 events are kept while nobody awaits them. \thread the
  /// runtime's.
  [[nodiscard]] task<verbs::async_event> next_device_event();

  /// Returns what the runtime did so far. The numbers belong to about one moment: concurrent work
  /// may be counted in part. \thread any, while the runtime lives. \cost  some 100 loads; no lock
  /// and no allocation, and no system calls but those that read the port's counters.
  [[nodiscard]] cordma::metrics metrics() const noexcept;

  /// Reaps the completions of all queues in manual mode. Returns how many.
  std::size_t poll() noexcept;
  [[nodiscard]] std::size_t completion_queue_count() const noexcept;

 private:
  const std::unique_ptr<detail::runtime_state> state_;
};

}  // namespace cordma
