#include "control_fixture.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <string_view>

using namespace softverbs;

namespace {

constexpr std::uint64_t all_operations =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV |
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_ATOMIC_WRITE;

/// A queue pair whose posts wait, to be looked at.
class batch_of {
 public:
  explicit batch_of(const device& dev, ibv_qp_type type = IBV_QPT_RC,
                    std::uint64_t operations = all_operations)
      : qp{dev.create_ex(type, operations)}, ex{verb::qp_to_qp_ex(qp)} {
    drain_ready(qp);
  }
  ~batch_of() { CHECK(verb::destroy_qp(qp) == 0); }
  batch_of(const batch_of&) = delete;
  batch_of& operator=(const batch_of&) = delete;

  [[nodiscard]] send_ring& ring() const { return inside(qp).sends; }
  [[nodiscard]] std::uint64_t queued() const { return ring().posted - ring().completed; }
  [[nodiscard]] send_request& at(std::uint64_t i) const {
    return inside(qp).request(ring().completed + i);
  }

  ibv_qp* qp;
  ibv_qp_ex* ex;
};

}  // namespace

TEST_CASE("a batch is queued as it was built", "[qp]") {
  const device dev;
  const batch_of b{dev};
  ibv_wr_start(b.ex);
  b.ex->wr_id = 1;
  b.ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(b.ex, 0x77, 0x8800, 99);
  ibv_wr_set_sge(b.ex, 5, 0x1000, 12);
  b.ex->wr_id = 2;
  b.ex->wr_flags = IBV_SEND_FENCE;
  ibv_wr_atomic_cmp_swp(b.ex, 0x78, 0x9900, 3, 4);
  const ibv_sge list[]{{0x2000, 4, 6}, {0x3000, 4, 7}};
  ibv_wr_set_sge_list(b.ex, 2, list);
  b.ex->wr_id = 3;
  ibv_wr_local_inv(b.ex, 0x79);
  CHECK(ibv_wr_complete(b.ex) == 0);

  REQUIRE(b.queued() == 3);
  CHECK(b.at(0).wr_id == 1);
  CHECK(b.at(0).opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(b.at(0).flags == IBV_SEND_SIGNALED);
  CHECK(b.at(0).remote().rkey == 0x77);
  CHECK(b.at(0).remote().address == 0x8800);
  CHECK(b.at(0).immediate == 99);
  CHECK(b.at(0).length == 12);
  CHECK(b.at(1).flags == IBV_SEND_FENCE);
  CHECK(b.at(1).remote().operand[0] == 3);
  CHECK(b.at(1).remote().operand[1] == 4);
  CHECK(b.at(1).sge_count == 2);
  CHECK(b.at(1).sges()[1].lkey == 7);
  CHECK(b.at(2).opcode == IBV_WR_LOCAL_INV);
  CHECK(b.at(2).immediate == 0x79);
}

TEST_CASE("inline data of a batch is copied, whatever the flags say", "[qp]") {
  const device dev;
  const batch_of b{dev};
  char first[] = "abc", second[] = "defgh";
  const ibv_data_buf list[]{{first, 3}, {nullptr, 0}, {second, 5}};
  ibv_wr_start(b.ex);
  b.ex->wr_flags = IBV_SEND_INLINE;
  ibv_wr_send(b.ex);
  ibv_wr_set_inline_data_list(b.ex, 3, list);
  ibv_wr_send(b.ex);
  CHECK(ibv_wr_complete(b.ex) == 0);
  REQUIRE(b.queued() == 2);
  CHECK(b.at(0).inlined);
  CHECK(b.at(0).length == 8);
  const auto* kept = reinterpret_cast<const char*>(b.at(0).data());
  CHECK(std::string_view{kept, 8} == "abcdefgh");
  CHECK_FALSE(b.at(1).inlined);
  CHECK(b.at(1).length == 0);
}

TEST_CASE("an error anywhere in a batch takes all of it back", "[qp]") {
  const device dev;
  const batch_of b{dev};
  const auto refused = [&](auto mistake) {
    ibv_wr_start(b.ex);
    b.ex->wr_flags = 0;
    ibv_wr_send(b.ex);
    mistake();
    b.ex->wr_flags = 0;
    ibv_wr_send(b.ex);
    const int error = ibv_wr_complete(b.ex);
    CHECK(b.queued() == 0);
    return error;
  };
  char bytes[inline_max + 1]{};
  ibv_sge list[list_max + 1]{};
  CHECK(refused([&] { ibv_wr_set_inline_data(b.ex, bytes, sizeof bytes); }) == EINVAL);
  CHECK(refused([&] { ibv_wr_set_sge_list(b.ex, list_max + 1, list); }) == EINVAL);
  address_handle ah = dev.address();
  // An RC queue pair has a peer already.
  CHECK(refused([&] { ibv_wr_set_ud_addr(b.ex, &ah.handle, 1, 1); }) == EINVAL);
  CHECK(refused([&] {
          ibv_wr_atomic_write(b.ex, 1, 8, bytes);
          ibv_wr_set_inline_data(b.ex, bytes, 8);
        }) == EINVAL);
  CHECK(refused([&] { ibv_wr_send_tso(b.ex, bytes, 1, 1); }) == EOPNOTSUPP);
  CHECK(refused([&] {
          b.ex->wr_flags = IBV_SEND_IP_CSUM;
          ibv_wr_send(b.ex);
        }) == EINVAL);
  CHECK(refused([&] {
          ibv_wr_rdma_read(b.ex, 1, 8);
          ibv_wr_set_inline_data(b.ex, bytes, 1);
        }) == EINVAL);
  CHECK(refused([&] {
          for (std::uint32_t i = 0; i < depth; ++i) ibv_wr_send(b.ex);
        }) == ENOMEM);
  // The first error is the one that is told.
  CHECK(refused([&] {
          ibv_wr_set_inline_data(b.ex, bytes, sizeof bytes);
          ibv_wr_set_xrc_srqn(b.ex, 1);
        }) == EINVAL);

  ibv_wr_start(b.ex);
  ibv_wr_set_sge(b.ex, 1, 2, 3);  // No request is open.
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
}

TEST_CASE("an aborted batch leaves nothing, an empty one does nothing", "[qp]") {
  const device dev;
  const batch_of b{dev};
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  ibv_wr_abort(b.ex);
  CHECK(b.queued() == 0);
  ibv_wr_start(b.ex);
  CHECK(ibv_wr_complete(b.ex) == 0);
  CHECK(b.queued() == 0);
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  CHECK(ibv_wr_complete(b.ex) == 0);
  CHECK(b.queued() == 1);
}

TEST_CASE("a thread may poll in the middle of its batch", "[qp]") {
  const device dev;
  const batch_of b{dev};
  ibv_wr_start(b.ex);
  ibv_wr_rdma_write(b.ex, 0x77, 0x8800);
  inside(b.qp).local_node->kick(b.qp->qp_num);
  inside(b.qp).local_node->progress();
  ibv_wr_set_sge(b.ex, 5, 0x1000, 12);
  CHECK(ibv_wr_complete(b.ex) == 0);
  CHECK(b.queued() == 1);
  CHECK(b.at(0).length == 12);
}

TEST_CASE("an open batch holds up nobody but who posts to the same queue pair", "[qp]") {
  constexpr std::chrono::seconds patience{60};
  const device dev;
  const batch_of a{dev};
  const batch_of b{dev};
  std::promise<void> opened;
  std::promise<void> may_end;
  auto other = std::async(std::launch::async, [&, end = may_end.get_future()] {
    ibv_wr_start(b.ex);
    ibv_wr_send(b.ex);
    opened.set_value();
    const bool told = end.wait_for(patience) == std::future_status::ready;
    return told ? ibv_wr_complete(b.ex) : ETIMEDOUT;
  });
  opened.get_future().wait();
  ibv_wr_start(a.ex);
  ibv_wr_send(a.ex);
  inside(b.qp).local_node->kick(b.qp->qp_num);
  inside(b.qp).local_node->progress();
  CHECK(b.queued() == 0);
  may_end.set_value();
  CHECK(other.get() == 0);
  CHECK(ibv_wr_complete(a.ex) == 0);
  CHECK(b.queued() == 1);
}

TEST_CASE("whoever waits to open a batch leaves the errors of the one that is open", "[qp]") {
  const device dev;
  const batch_of b{dev};
  std::vector<std::byte> too_much(4096);
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  ibv_wr_set_inline_data(b.ex, too_much.data(), too_much.size());
  std::promise<void> about_to_open;
  auto other = std::async(std::launch::async, [&] {
    about_to_open.set_value();
    ibv_wr_start(b.ex);
    ibv_wr_send(b.ex);
    return ibv_wr_complete(b.ex);
  });
  about_to_open.get_future().wait();
  // The other thread waits after these yields, or soon.
  for (int n = 0; n < 1000; ++n) std::this_thread::yield();
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  CHECK(other.get() == 0);
  CHECK(b.queued() == 1);
}

TEST_CASE("a batch of a queue pair that was reset meanwhile is refused", "[qp]") {
  const device dev;
  const batch_of b{dev};
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  REQUIRE(move_to(b.qp, IBV_QPS_RESET) == 0);
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  CHECK(b.queued() == 0);
}

TEST_CASE("a batch does only what the queue pair was created for", "[qp]") {
  const device dev;
  const batch_of b{dev, IBV_QPT_RC, IBV_QP_EX_WITH_SEND};
  ibv_wr_start(b.ex);
  ibv_wr_rdma_write(b.ex, 1, 8);
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  CHECK(ibv_wr_complete(b.ex) == 0);
  CHECK(b.queued() == 1);
}

TEST_CASE("a batch is refused before the queue pair can send", "[qp]") {
  const device dev;
  const batch_of b{dev, IBV_QPT_UD, IBV_QP_EX_WITH_SEND};
  REQUIRE(move_to(b.qp, IBV_QPS_RESET) == 0);
  address_handle ah = dev.address();
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  ibv_wr_set_ud_addr(b.ex, &ah.handle, 2, 3);
  ibv_wr_set_sge(b.ex, 1, 2, 3);
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  CHECK(b.queued() == 0);
}

TEST_CASE("a datagram of a batch goes where its address says", "[qp]") {
  const device dev;
  const batch_of b{dev, IBV_QPT_UD, IBV_QP_EX_WITH_SEND};
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  {
    address_handle ah = dev.address();
    ibv_wr_set_ud_addr(b.ex, &ah.handle, b.qp->qp_num, 3);
  }
  ibv_wr_send(b.ex);
  ibv_wr_set_ud_addr(b.ex, nullptr, 1, 1);
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  CHECK(b.queued() == 0);
  ibv_wr_start(b.ex);
  ibv_wr_send(b.ex);
  {
    address_handle ah = dev.address();
    ibv_wr_set_ud_addr(b.ex, &ah.handle, b.qp->qp_num, 3);
  }
  // A request without an address goes to nobody, whatever the place held before.
  ibv_wr_send(b.ex);
  CHECK(ibv_wr_complete(b.ex) == 0);
  REQUIRE(b.queued() == 2);
  CHECK(b.at(0).datagram().qpn == b.qp->qp_num);
  CHECK(b.at(0).datagram().qkey == 3);
  CHECK(b.at(1).datagram().qpn == 0);
  CHECK(b.at(1).datagram().qkey == 0);
}

TEST_CASE("a batch binds windows of type 2 only", "[qp]") {
  const device dev;
  const batch_of b{dev};
  ibv_mw window{dev.ctx, dev.pd, 0x1200, 0, IBV_MW_TYPE_1};
  const ibv_mw_bind_info nothing{};
  ibv_wr_start(b.ex);
  ibv_wr_bind_mw(b.ex, &window, 0x1201, &nothing);
  CHECK(ibv_wr_complete(b.ex) == EINVAL);
  window.type = IBV_MW_TYPE_2;
  ibv_wr_start(b.ex);
  ibv_wr_bind_mw(b.ex, &window, 0x1201, &nothing);
  CHECK(ibv_wr_complete(b.ex) == 0);
  REQUIRE(b.queued() == 1);
  CHECK(b.at(0).bind().old_rkey == 0x1200);
  CHECK(b.at(0).bind().new_rkey == 0x1201);
  REQUIRE(move_to(b.qp, IBV_QPS_RESET) == 0);
}
