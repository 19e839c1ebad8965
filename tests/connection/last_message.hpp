#pragma once

#include "support/verbs_faults.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace cordma::test {

/// A message that the peer's device has taken and not yet reported when the peer looks last: it is
/// sent ahead of the next ibv_modify_qp.
class last_message {
 public:
  last_message(connection& from, const const_local_mr_slice& what)
      : from_{from.verbs().native_handle()},
        what_{.addr = reinterpret_cast<std::uintptr_t>(what.bytes().data()),
              .length = std::uint32_t(what.size_bytes()),
              .lkey = what.lkey()} {
    verbs_faults::before_next_modify(&send, this);
  }
  last_message(last_message&&) = delete;
  ~last_message() { verbs_faults::before_next_modify(nullptr, nullptr); }

 private:
  static void send(void* about) noexcept {
    auto& self = *static_cast<last_message*>(about);
    ibv_send_wr wr{};
    wr.sg_list = &self.what_;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ibv_post_send(self.from_, &wr, &bad);
  }

  ibv_qp* const from_;
  ibv_sge what_;
};

}  // namespace cordma::test
