#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/detail/base/export.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace cordma {

struct connection_options;
struct connection_resources;

namespace detail {
struct prepared_state;
}

/// The facts that two queue pairs must know of each other, for a peer that is not cordma. The
/// program moves them as that peer wants them.
struct queue_pair_info {
  std::uint32_t qpn = 0;  ///< 24 bits.
  std::uint32_t psn = 0;  ///< 24 bits: of the first packet that this side sends.
  std::uint16_t lid = 0;  ///< 0 on Ethernet.
  ibv_gid gid{};
  ibv_mtu mtu = IBV_MTU_1024;  ///< The most that this side's path takes.
  std::uint32_t rd_atomic_initiator =
      1;  ///< READs and atomics that this side has in flight at most.
  std::uint32_t rd_atomic_responder = 1;  ///< READs and atomics that this side serves at once.
  /// The peer lets this side write, so that 0-byte WRITEs may ask whether it lives.
  bool allows_writes = false;
};

/// One side of a connection whose information the program moves itself: by a file, etcd, MPI, mail.
///
///     prepared_connection mine = rt.prepare_connection();
///     put("rank0", mine.info());
///     connection conn = co_await mine.connect(get("rank1"));
///
/// The two sides exchange texts, and both call `connect`, in any order, within `connect_timeout` of
/// each other. Each text is good for one connection, and for `lifetime`. Whoever has a text, or
/// changes it on its way, can take the peer's place: the way that it goes authenticates the sides.
/// Move-only. \thread the executor's.
class CORDMA_EXPORT prepared_connection {
 public:
  static constexpr std::chrono::seconds lifetime{60};

  /// Makes the queue pairs. \errors as `listener`.
  prepared_connection(connection_resources resources, const connection_options& options);
  prepared_connection(prepared_connection&&) noexcept;
  prepared_connection& operator=(prepared_connection&&) noexcept;
  ~prepared_connection();

  /// Returns what the peer's `connect` takes: printable, without blanks, some 530 characters, with
  /// a version and a checksum. \errors errc::refused: this side has connected already.
  [[nodiscard]] std::string info() const;
  /// Connects to the peer that `theirs` describes. Once. The prepared connection stays until the
  /// task has ended.
  /// \errors  errc::bad_handshake: `theirs` is damaged, cut, or this side's own.
  ///   errc::incompatible_peer: another version, link layer or GID type. errc::refused: either text
  ///   was used already. errc::timed_out: `lifetime`, or the peer has not answered within
  ///   `connect_timeout`.
  task<connection> connect(std::string_view theirs);

  /// Returns what a peer needs that is not cordma. The connection then has no agent, whatever the
  /// options say. \errors errc::refused: this side has connected already.
  [[nodiscard]] queue_pair_info plain_info() const;
  /// Connects to a queue pair of any program, without a word to it: the peer has done the same, or
  /// will. Once. \errors those of ibv_modify_qp(3); errc::refused, errc::timed_out, as above.
  task<connection> connect_plain(queue_pair_info theirs);

 private:
  std::unique_ptr<detail::prepared_state> state_;
};

}  // namespace cordma
