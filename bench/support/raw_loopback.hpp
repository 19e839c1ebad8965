#pragma once

#include <support/loopback.hpp>
#include <support/raw_verbs.hpp>

#include <cstddef>
#include <cstdint>

namespace bench {

/// The loopback of the tests, polled busily, and beside it a raw pair on the same device, domain
/// and memory. So both sides of a comparison do the same work. One thread polls all of it.
class raw_loopback : public cordma::test::loopback {
 public:
  static constexpr std::uint32_t depth = 64;

  raw_loopback();

  /// A raw request with `size_bytes` of `local`, to `remote`; inline where ours would be.
  [[nodiscard]] support::raw::request request(ibv_wr_opcode opcode, std::size_t size_bytes) const {
    const cordma::remote_mr_slice to = remote.remote_slice();
    return {opcode, piece_of(local, size_bytes), {to.address(), to.rkey()}, inline_max};
  }
  /// A raw receive of `size_bytes` into `remote`.
  [[nodiscard]] support::raw::receive receive(std::size_t size_bytes) const {
    return support::raw::receive{piece_of(remote, size_bytes)};
  }
  [[nodiscard]] static ibv_sge piece_of(const cordma::local_mr& mr, std::size_t size_bytes) {
    return support::raw::piece(mr.bytes().data(), size_bytes, mr.slice().lkey());
  }

  cordma::local_mr local, remote;
  support::raw::pair raw;
  const std::size_t inline_max = raw.a.capabilities().inline_max;
};

}  // namespace bench
