#pragma once

#include <cordma/verbs/queue_pair.hpp>

// <softverbs/softverbs.h> has it. Without softverbs there is none.
extern "C" [[gnu::weak]] int softverbs_cut_link(ibv_qp* qp, int cut);

namespace cordma::test {

/// Lets soft0 lose all that comes to a queue pair and goes from it, or no longer.
inline void cut_link(verbs::queue_pair& qp, bool cut) noexcept {
  softverbs_cut_link(qp.native_handle(), int(cut));
}

}  // namespace cordma::test
