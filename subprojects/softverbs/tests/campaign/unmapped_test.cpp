#include "process.hpp"
#include "rig.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <functional>

// A role, so that the program's own handler is there before soft0 is opened, and no other's.

namespace {

constexpr std::size_t region_bytes = 256 * 1024;

void* map() {
  void* const at =
      ::mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) rig::fail("mmap", errno);
  return at;
}

/// A registered region whose memory can go.
struct region {
  explicit region(const rig::device& dev) : memory{map()}, mr{dev.reg(memory, region_bytes)} {}
  ~region() { ::munmap(memory, region_bytes); }
  region(const region&) = delete;
  /// Makes accesses fail as if the memory were unmapped; but no later mapping comes to lie there.
  void forbid() const { rig::check(::mprotect(memory, region_bytes, PROT_NONE), "mprotect"); }
  [[nodiscard]] ibv_sge piece(std::size_t length) const {
    return rig::piece(mr.get(), memory, length);
  }
  void* memory;
  rig::mr_ptr mr;
};

struct region_request {
  rig::card peer;
  bool gone;
};

/// The other side of each queue pair: it grants a region and has posted a receive into it.
class granter {
 public:
  granter() { gone_.forbid(); }
  rig::card grant(const region_request& w) {
    const region& r = w.gone ? gone_ : whole_;
    rig::qp_ptr qp = rig::make_qp(device_, cq_.get(), cq_.get());
    rig::to_init(qp.get());
    rig::post_recv(qp.get(), 1, r.piece(region_bytes));
    rig::connect(qp.get(), device_, w.peer);
    qps_.push_back(std::move(qp));
    return {qps_.back()->qp_num, r.mr->rkey, reinterpret_cast<std::uintptr_t>(r.memory),
            device_.gid, 0};
  }

 private:
  rig::device device_;
  rig::cq_ptr cq_ = device_.make_cq(16);
  region whole_{device_};
  region gone_{device_};
  std::vector<rig::qp_ptr> qps_;
};

int granting(const std::vector<std::string>&) {
  const int control = rig::first_inherited_fd;
  granter self;
  // The child goes on until it is killed.
  for (;;) rig::put(control, self.grant(rig::get<region_request>(control)));
}
const rig::role granting_role{"unmapped-granter", granting};

using ask = std::function<rig::card(const region_request&)>;

ibv_wc_status outcome(ibv_wr_opcode opcode, bool ours_gone, bool theirs_gone, const ask& grant) {
  const rig::device device;
  const rig::cq_ptr cq = device.make_cq(16);
  const region local{device};
  const rig::qp_ptr qp = rig::make_qp(device, cq.get(), cq.get());
  rig::to_init(qp.get());
  const rig::card peer = grant({{qp->qp_num, 0, 0, device.gid, 0}, theirs_gone});
  rig::connect(qp.get(), device, peer);
  rig::request r{opcode, 1, local.piece(opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : region_bytes)};
  if (opcode != IBV_WR_SEND) r.to(peer.address, peer.rkey).operands(1);
  if (ours_gone) local.forbid();
  rig::check(r.post(qp.get()), "ibv_post_send");
  return rig::wait_one(cq.get()).status;
}

void try_all(const char* where, const ask& grant) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    const auto expect = [&](const char* what, ibv_wc_status status, auto... allowed) {
      const bool fine = ((status == allowed) || ...);
      if (fine) return;
      throw std::runtime_error{std::string{where} + ", opcode " + std::to_string(opcode) + ", " +
                               what + ": " + ibv_wc_status_str(status)};
    };
    expect("whole", outcome(opcode, false, false, grant), IBV_WC_SUCCESS);
    expect("ours gone", outcome(opcode, true, false, grant), IBV_WC_LOC_PROT_ERR);
    expect("theirs gone", outcome(opcode, false, true, grant), IBV_WC_REM_ACCESS_ERR,
           IBV_WC_REM_OP_ERR);
  }
}

sigjmp_buf back;
volatile std::sig_atomic_t own_faults = 0;

void own_handler(int) {
  own_faults = own_faults + 1;
  siglongjmp(back, 1);
}

int all_of_it(const std::vector<std::string>&) {
  struct sigaction mine{};
  mine.sa_handler = own_handler;
  rig::check(::sigaction(SIGSEGV, &mine, nullptr), "sigaction");

  granter local;
  try_all("in one process", [&](const region_request& w) { return local.grant(w); });
  rig::socket_pair control;
  const rig::child remote{"unmapped-granter", {control.theirs.get()}};
  control.theirs.close();
  try_all("in two processes", [&](const region_request& w) {
    rig::put(control.ours.get(), w);
    return rig::get<rig::card>(control.ours.get());
  });
  if (own_faults != 0) throw std::runtime_error{"soft0's faults reached the program's handler"};

  volatile int* const forbidden = static_cast<int*>(map());
  rig::check(::mprotect(const_cast<int*>(forbidden), region_bytes, PROT_NONE), "mprotect");
  if (sigsetjmp(back, 1) == 0) *forbidden = 1;
  if (own_faults != 1) throw std::runtime_error{"the program's fault did not reach its handler"};
  return 0;
}
const rig::role unmapping_role{"unmapping", all_of_it};

}  // namespace

TEST_CASE("memory that was unmapped after it was registered ends requests with an error",
          "[campaign]") {
  CHECK(rig::child{"unmapping", {}}.wait() == 0);
}
