#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <utility>

namespace cordma::test {

/// Calls of a context, and a fault that its device seems to have. A test sets the fault, and gives
/// `make` to the side that has the device.
struct faulty_device {
  ibv_context_ops before{};
  std::function<void(ibv_wc& wc)> change;        ///< changes each completion
  std::function<void(ibv_send_wr& wr)> misread;  ///< changes each request that the device gets
  ibv_wc again{};                                ///< the next completion, unless its id is 0

  static faulty_device& here() {
    static faulty_device one;
    return one;
  }
  static void make(ibv_context& context) {
    here().before = context.ops;
    context.ops.poll_cq = &poll;
    context.ops.post_send = &post;
  }
  static int poll(ibv_cq* cq, int most, ibv_wc* completions) {
    if (here().again.wr_id != 0) {
      completions[0] = std::exchange(here().again, {});
      return 1;
    }
    const int count = here().before.poll_cq(cq, most, completions);
    if (count == 1 && here().change) here().change(completions[0]);
    return count;
  }
  static int post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    if (here().misread) here().misread(*first);
    return here().before.post_send(qp, first, bad);
  }
};

/// Sets what is wrong with the device of one test, and takes it back.
class device_fault {
 public:
  explicit device_fault(std::function<void(ibv_wc& wc)> change,
                        std::function<void(ibv_send_wr& wr)> misread = {}) {
    faulty_device::here().change = std::move(change);
    faulty_device::here().misread = std::move(misread);
  }
  device_fault(const device_fault&) = delete;
  ~device_fault() { faulty_device::here() = {}; }
};

}  // namespace cordma::test
