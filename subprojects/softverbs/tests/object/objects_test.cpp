#include "node/gid_table.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"
#include "queue/completion_queue.hpp"
#include "queue/receive_queue.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>

namespace softverbs {
namespace {

struct device {
  ~device() {
    CHECK(verb::dealloc_pd(pd) == 0);
    close_context(ctx);
  }
  ibv_context* ctx = open_context(verbs_context{});
  ibv_pd* pd = verb::alloc_pd(ctx);
};

ibv_mr* reg(const device& on, void* address, std::size_t length, unsigned access) {
  return verb::reg_mr(on.pd, address, length, reinterpret_cast<std::uintptr_t>(address), access);
}

bool put(ibv_cq* cq, std::uint64_t wr_id, bool solicited = false,
         ibv_wc_status status = IBV_WC_SUCCESS) {
  completion entry{};
  entry.wc.wr_id = wr_id;
  entry.wc.status = status;
  return push(*reinterpret_cast<completion_queue*>(cq), entry, solicited);
}

bool readable(int fd) {
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 1;
}

/// Does what ibv_ack_cq_events() does.
void acknowledge(ibv_cq* cq, unsigned events) {
  ::pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += events;
  ::pthread_cond_signal(&cq->cond);
  ::pthread_mutex_unlock(&cq->mutex);
}

struct channel_and_queue : device {
  channel_and_queue() { ::fcntl(channel->fd, F_SETFL, O_NONBLOCK); }
  ~channel_and_queue() {
    CHECK(verb::destroy_cq(cq) == 0);
    CHECK_FALSE(readable(channel->fd));
    CHECK(verb::destroy_comp_channel(channel) == 0);
  }
  /// Events that were read, and acknowledged.
  unsigned events() {
    unsigned read = 0;
    ibv_cq* of = nullptr;
    void* cq_context = nullptr;
    while (verb::get_cq_event(channel, &of, &cq_context) == 0) {
      CHECK(of == cq);
      CHECK(cq_context == this);
      ++read;
    }
    CHECK(errno == EAGAIN);
    acknowledge(cq, read);
    return read;
  }
  ibv_comp_channel* channel = verb::create_comp_channel(ctx);
  ibv_cq* cq = verb::create_cq(ctx, 8, this, channel, 0);
};

}  // namespace

TEST_CASE("a region asks for flags that go together, and memory that is there", "[object]") {
  device soft0;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* pages = static_cast<std::byte*>(
      ::mmap(nullptr, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::munmap(pages + page, page);
  const auto errno_of = [&](void* address, std::size_t length, unsigned access) {
    errno = 0;
    ibv_mr* mr = reg(soft0, address, length, access);
    if (mr != nullptr) CHECK(verb::dereg_mr(mr) == 0);
    return errno;
  };
  CHECK(errno_of(pages, page, 0) == 0);
  CHECK(errno_of(pages, page, IBV_ACCESS_RELAXED_ORDERING) == 0);
  CHECK(errno_of(pages, page, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
  CHECK(errno_of(pages, page, IBV_ACCESS_REMOTE_ATOMIC) == EINVAL);
  CHECK(errno_of(pages, 3 * page, IBV_ACCESS_ON_DEMAND) == 0);
  CHECK(errno_of(nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND) == 0);
  CHECK(errno_of(nullptr, SIZE_MAX, 0) != 0);
  CHECK(errno_of(pages, page, IBV_ACCESS_LOCAL_WRITE) == EFAULT);  // The page is read-only.
  CHECK(errno_of(pages, 3 * page, 0) == EFAULT);
  CHECK(errno_of(pages + page - 1, 2, 0) == EFAULT);
  CHECK(errno_of(pages + 16, SIZE_MAX, 0) == EINVAL);
  ::munmap(pages, 3 * page);
}

TEST_CASE("a domain stays while something lives in it", "[object]") {
  device soft0;
  std::array<std::byte, 8> bytes{};
  ibv_mr* mr = reg(soft0, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  CHECK(mr->lkey == mr->rkey);
  CHECK(verb::dealloc_pd(soft0.pd) == EBUSY);
  CHECK(verb::dereg_mr(mr) == 0);
  ibv_mw* mw = verb::alloc_mw(soft0.pd, IBV_MW_TYPE_2);
  REQUIRE(mw != nullptr);
  CHECK(verb::dealloc_pd(soft0.pd) == EBUSY);
  mw->rkey = ibv_inc_rkey(mw->rkey);
  CHECK(verb::dealloc_mw(mw) == 0);
}

TEST_CASE("re-registration moves the region under its key, or leaves it as it was", "[object]") {
  device soft0, other;
  std::array<std::byte, 64> bytes{};
  ibv_mr* mr = reg(soft0, bytes.data(), 32, IBV_ACCESS_LOCAL_WRITE);
  const std::uint32_t key = mr->lkey;
  const auto rereg = [&](int flags, ibv_pd* pd, std::size_t length, unsigned access) {
    return verb::rereg_mr(mr, flags, pd, bytes.data() + 8, length, static_cast<int>(access));
  };
  // First come the checks that libibverbs does itself, then those that a kernel would do.
  CHECK(rereg(1 << 3, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(rereg(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(rereg(IBV_REREG_MR_CHANGE_PD, soft0.pd, 0, IBV_ACCESS_LOCAL_WRITE) ==
        IBV_REREG_MR_ERR_INPUT);
  CHECK(errno == EINVAL);
  CHECK(rereg(0, nullptr, 0, 0) == IBV_REREG_MR_ERR_CMD);
  CHECK(rereg(IBV_REREG_MR_CHANGE_PD, other.pd, 0, 0) == IBV_REREG_MR_ERR_CMD);
  CHECK(rereg(IBV_REREG_MR_CHANGE_ACCESS, nullptr, 0, IBV_ACCESS_REMOTE_WRITE) ==
        IBV_REREG_MR_ERR_CMD);
  CHECK(mr->length == 32);
  ibv_pd* pd = verb::alloc_pd(soft0.ctx);
  REQUIRE(rereg(IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD, pd, 40, 0) == 0);
  CHECK(mr->addr == bytes.data() + 8);
  CHECK(mr->length == 40);
  CHECK(mr->lkey == key);
  CHECK(verb::dealloc_pd(pd) == EBUSY);
  CHECK(verb::dereg_mr(mr) == 0);
  CHECK(verb::dealloc_pd(pd) == 0);
}

TEST_CASE("one request for notification brings one event, for what it asked", "[object]") {
  channel_and_queue queue;
  verb::req_notify_cq(queue.cq, 0);
  CHECK_FALSE(readable(queue.channel->fd));
  put(queue.cq, 2);
  put(queue.cq, 3);
  CHECK(readable(queue.channel->fd));
  CHECK(queue.events() == 1);
  verb::req_notify_cq(queue.cq, 1);
  put(queue.cq, 4);
  CHECK(queue.events() == 0);
  put(queue.cq, 5, true);
  CHECK(queue.events() == 1);
  verb::req_notify_cq(queue.cq, 1);
  put(queue.cq, 6, false, IBV_WC_WR_FLUSH_ERR);
  CHECK(queue.events() == 1);
  verb::req_notify_cq(queue.cq, 0);
  verb::req_notify_cq(queue.cq, 1);  // Does not weaken the first.
  put(queue.cq, 7);  // Entry 7's event is never read: destroying the queue takes it back.
  CHECK(verb::destroy_comp_channel(queue.channel) == EBUSY);
}

TEST_CASE("entries that came before a queue is armed raise their event then, once", "[object]") {
  channel_and_queue queue;
  put(queue.cq, 1);
  CHECK(queue.events() == 0);  // The queue is not armed.
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 1);
  // The event told of entry 1, and the queue is not armed again.
  put(queue.cq, 2);
  CHECK(queue.events() == 0);
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 1);
  // Events told of all entries: a program may arm before it polls.
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 0);
  put(queue.cq, 3);
  CHECK(queue.events() == 1);
}

TEST_CASE("polled entries raise no event", "[object]") {
  channel_and_queue queue;
  ibv_wc taken{};
  put(queue.cq, 1);
  REQUIRE(verb::poll_cq(queue.cq, 1, &taken) == 1);
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 0);
  put(queue.cq, 2);
  CHECK(queue.events() == 1);
}

TEST_CASE("who waits for solicited entries is told of one that came before", "[object]") {
  channel_and_queue queue;
  put(queue.cq, 1);
  verb::req_notify_cq(queue.cq, 1);
  CHECK(queue.events() == 0);
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 1);
  put(queue.cq, 2, true);
  put(queue.cq, 3);
  verb::req_notify_cq(queue.cq, 1);
  CHECK(queue.events() == 1);
}

TEST_CASE("hidden entries raise their event when the fault ends", "[object]") {
  channel_and_queue queue;
  auto& inner = *reinterpret_cast<completion_queue*>(queue.cq);
  withhold(inner);
  put(queue.cq, 1);
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 0);
  release_withheld(inner);
  CHECK(queue.events() == 1);
  withhold(inner);
  put(queue.cq, 2);
  release_withheld(inner);
  CHECK(queue.events() == 0);
  verb::req_notify_cq(queue.cq, 0);
  CHECK(queue.events() == 1);
}

TEST_CASE("a queue without a channel cannot be armed, since nobody would hear its event",
          "[object]") {
  device soft0;
  ibv_cq* cq = verb::create_cq(soft0.ctx, 1, nullptr, nullptr, 0);
  CHECK(verb::req_notify_cq(cq, 0) == EINVAL);
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("entries come out in order and free their WQEs when they are polled", "[object]") {
  device soft0;
  ibv_cq* cq = verb::create_cq(soft0.ctx, 3, nullptr, nullptr, 0);
  std::atomic<std::uint64_t> released{0};
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (std::uint64_t i = 1; i <= 3; ++i) {
      completion entry{};
      entry.wc.wr_id = round * 3 + i;
      entry.released = &released;
      entry.release_to = entry.wc.wr_id;
      REQUIRE(push(*reinterpret_cast<completion_queue*>(cq), entry, false));
    }
    std::array<ibv_wc, 4> taken{};
    REQUIRE(verb::poll_cq(cq, 2, taken.data()) == 2);
    CHECK(released.load() == round * 3 + 2);
    CHECK(verb::resize_cq(cq, 3 + static_cast<int>(round % 3)) == 0);
    REQUIRE(verb::poll_cq(cq, 4, taken.data() + 2) == 1);
    CHECK(taken[0].wr_id == round * 3 + 1);
    CHECK(taken[2].wr_id == round * 3 + 3);
  }
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("a queue that was emptied begins with its first slot again", "[object]") {
  device soft0;
  ibv_cq* cq = verb::create_cq(soft0.ctx, 4, nullptr, nullptr, 0);
  const completion_queue& inner = *reinterpret_cast<completion_queue*>(cq);
  ibv_wc taken{};
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 2; ++i) REQUIRE(put(cq, 2 * round + i));
    CHECK(inner.ring[1].wc.wr_id == 2 * round + 1);
    for (std::uint64_t i = 0; i < 2; ++i) {
      REQUIRE(verb::poll_cq(cq, 1, &taken) == 1);
      CHECK(taken.wr_id == 2 * round + i);
    }
  }
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("a deep queue uses slots for the entries that it has, which keep their order",
          "[object]") {
  device soft0;
  ibv_cq* cq = verb::create_cq(soft0.ctx, 1000, nullptr, nullptr, 0);
  const completion_queue& inner = *reinterpret_cast<completion_queue*>(cq);
  std::uint64_t pushed = 0, polled = 0;
  const auto push_some = [&](int count) {
    for (int i = 0; i < count; ++i) REQUIRE(put(cq, pushed++));
  };
  const auto poll_some = [&](int count) {
    ibv_wc taken{};
    for (int i = 0; i < count; ++i) {
      REQUIRE(verb::poll_cq(cq, 1, &taken) == 1);
      REQUIRE(taken.wr_id == polled++);
    }
  };
  for (int before = 1; before < 64; before += 7) {  // Wherever its oldest is when it grows.
    push_some(before + 1);
    poll_some(before);
    push_some(60);
    CHECK(inner.slots == 64);
    push_some(500);
    CHECK(inner.slots == 1024);
    poll_some(561);
  }
  push_some(1);
  CHECK(inner.slots == 64);
  poll_some(1);
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("a queue does not shrink below its entries, and its overrun is told once", "[object]") {
  device soft0;
  ibv_cq* cq = verb::create_cq(soft0.ctx, 3, nullptr, nullptr, 0);
  for (std::uint64_t i = 0; i < 3; ++i) CHECK(put(cq, i));
  CHECK(verb::resize_cq(cq, 2) == EINVAL);
  CHECK_FALSE(put(cq, 3));
  CHECK_FALSE(put(cq, 4));
  ::fcntl(soft0.ctx->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event{};
  REQUIRE(soft(soft0.ctx).async.pop(event) == 0);
  CHECK(event.event_type == IBV_EVENT_CQ_ERR);
  CHECK(event.element.cq == cq);
  CHECK(soft(soft0.ctx).async.pop(event) == -1);
  cq->async_events_completed = 1;

  std::array<ibv_wc, 4> taken{};
  CHECK(verb::poll_cq(cq, 4, taken.data()) == 3);
  CHECK_FALSE(put(cq, 5));  // The queue is in error for good.
  CHECK(verb::poll_cq(cq, 4, taken.data()) == 0);
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("a queue that ignores its overrun loses entries without a word", "[object]") {
  device soft0;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 1;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  ibv_cq_ex* made = verb::create_cq_ex(soft0.ctx, &attr);
  REQUIRE(made != nullptr);
  ibv_cq* cq = ibv_cq_ex_to_cq(made);
  CHECK(put(cq, 1));
  CHECK(put(cq, 2));
  ibv_wc wc{};
  REQUIRE(verb::poll_cq(cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 1);
  CHECK(put(cq, 3));
  REQUIRE(verb::poll_cq(cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 3);
  ::fcntl(soft0.ctx->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event{};
  CHECK(soft(soft0.ctx).async.pop(event) == -1);
  CHECK(verb::destroy_cq(cq) == 0);
}

TEST_CASE("queues and address handles that cannot be are refused", "[object]") {
  device soft0;
  CHECK(verb::create_cq(soft0.ctx, 0, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(verb::create_cq(soft0.ctx, limits().max_cqe + 1, nullptr, nullptr, 0) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(verb::create_cq(soft0.ctx, 1, nullptr, nullptr, soft0.ctx->num_comp_vectors) == nullptr);
  CHECK(errno == EINVAL);
  ibv_ah_attr address{};
  address.port_num = 1;
  CHECK(verb::create_ah(soft0.pd, &address) == nullptr);
  CHECK(errno == EINVAL);
  address.is_global = 1;
  address.grh.dgid = gid_at(0);
  ibv_ah* ah = verb::create_ah(soft0.pd, &address);
  REQUIRE(ah != nullptr);
  CHECK(verb::destroy_ah(ah) == 0);
  address.grh.sgid_index = 255;
  CHECK(verb::create_ah(soft0.pd, &address) == nullptr);
}

TEST_CASE("an extended queue is read entry by entry", "[object]") {
  device soft0;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  attr.wc_flags =
      std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  ibv_cq_ex* cq = verb::create_cq_ex(soft0.ctx, &attr);
  REQUIRE(cq != nullptr);
  ibv_poll_cq_attr none{};
  CHECK(ibv_start_poll(cq, &none) == ENOENT);
  put(ibv_cq_ex_to_cq(cq), 1);
  put(ibv_cq_ex_to_cq(cq), 2, false, IBV_WC_RETRY_EXC_ERR);
  REQUIRE(ibv_start_poll(cq, &none) == 0);
  CHECK(cq->wr_id == 1);
  CHECK(ibv_wc_read_completion_wallclock_ns(cq) != 0);
  REQUIRE(ibv_next_poll(cq) == 0);
  CHECK(cq->wr_id == 2);
  CHECK(cq->status == IBV_WC_RETRY_EXC_ERR);
  CHECK(ibv_next_poll(cq) == ENOENT);
  ibv_end_poll(cq);
  CHECK(verb::destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
  CHECK(verb::create_cq_ex(soft0.ctx, &attr) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("the time at which an entry came stays with it, whatever becomes of its queue",
          "[object]") {
  device soft0;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = verb::create_cq_ex(soft0.ctx, &attr);
  REQUIRE(cq != nullptr);
  auto& inner = *reinterpret_cast<completion_queue*>(cq);
  for (std::uint64_t i = 0; i < 3; ++i) {
    put(ibv_cq_ex_to_cq(cq), i);
    inner.timestamps[i] = 100 + i;
  }
  constexpr std::uint32_t gone = 7;
  inner.ring[1].wc.qp_num = gone;
  REQUIRE(verb::resize_cq(ibv_cq_ex_to_cq(cq), 40) == 0);
  forget(inner, gone);
  ibv_poll_cq_attr none{};
  REQUIRE(ibv_start_poll(cq, &none) == 0);
  CHECK(cq->wr_id == 0);
  CHECK(ibv_wc_read_completion_ts(cq) == 100);
  REQUIRE(ibv_next_poll(cq) == 0);
  CHECK(cq->wr_id == 2);
  CHECK(ibv_wc_read_completion_ts(cq) == 102);
  CHECK(ibv_next_poll(cq) == ENOENT);
  ibv_end_poll(cq);
  CHECK(verb::destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

TEST_CASE("an SRQ takes what fits and names the request that does not", "[object]") {
  device soft0;
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 2, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = verb::create_srq(soft0.pd, &attr);
  REQUIRE(srq != nullptr);
  std::array<ibv_sge, 2> sges{};
  ibv_recv_wr third{.wr_id = 3, .next = nullptr, .sg_list = sges.data(), .num_sge = 1};
  ibv_recv_wr second{.wr_id = 2, .next = &third, .sg_list = sges.data(), .num_sge = 1};
  ibv_recv_wr first{.wr_id = 1, .next = &second, .sg_list = sges.data(), .num_sge = 2};
  ibv_recv_wr* bad = nullptr;
  CHECK(verb::post_srq_recv(srq, &first, &bad) == EINVAL);
  CHECK(bad == &first);
  first.num_sge = 1;
  CHECK(verb::post_srq_recv(srq, &first, &bad) == ENOMEM);
  CHECK(bad == &third);
  ibv_srq_attr now{.max_wr = 0, .max_sge = 0, .srq_limit = 3};
  CHECK(verb::modify_srq(srq, &now, IBV_SRQ_LIMIT) == EINVAL);
  now.srq_limit = 2;
  CHECK(verb::modify_srq(srq, &now, IBV_SRQ_LIMIT) == 0);
  CHECK(verb::query_srq(srq, &now) == 0);
  CHECK(now.srq_limit == 2);
  CHECK(now.max_wr == 2);
  CHECK(verb::destroy_srq(srq) == 0);
}

}  // namespace softverbs
