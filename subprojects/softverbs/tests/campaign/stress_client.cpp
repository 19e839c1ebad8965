#include "stress.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace stress {
namespace {

constexpr std::uint64_t slot_free = 0;
constexpr std::uint64_t slot_taken = 1;
constexpr std::uint64_t slot_done = 2;  // + ibv_wc_status
constexpr int state_bits = 8;
constexpr std::uint64_t word(std::uint64_t epoch, std::uint64_t state) {
  return epoch << state_bits | state;
}

}  // namespace

struct client::use {
  end& e;
  std::uint32_t pair;
  std::mt19937_64& random;
  const std::function<void()>& meanwhile;
  std::uint64_t epoch;
  std::vector<std::uint32_t> slots{};  ///< that this visit took

  [[nodiscard]] std::uint64_t id(std::uint32_t slot) const {
    return std::uint64_t{pair} << pair_shift | std::uint64_t{slot} << slot_shift | epoch;
  }
  [[nodiscard]] ibv_sge source(std::uint32_t slot, std::size_t bytes) const {
    return rig::piece(e.source_mr.get(), &e.source[slot_at(slot)], bytes);
  }
  [[nodiscard]] ibv_sge sink(std::uint32_t slot, std::size_t bytes) const {
    return rig::piece(e.sink_mr.get(), &e.sink[slot_at(slot)], bytes);
  }
  void post(rig::request& r) const { rig::check(r.post(e.qp.get()), "ibv_post_send"); }
};

client::client(const rig::device& dev, std::uint32_t pairs, std::uint32_t queues, verdict& v,
               rebuild_type rebuild)
    : device_{dev}, verdict_{v}, rebuild_{std::move(rebuild)}, ends_(pairs) {
  const std::uint32_t entries = 8 * ops * (pairs / queues + 1);
  for (std::uint32_t i = 0; i < queues; ++i) {
    cqs_.push_back(dev.make_cq(static_cast<int>(entries)));
  }
  for (std::uint32_t i = 0; i < pairs; ++i) {
    end& e = ends_[i];
    e.cq = cqs_[i % queues].get();
    e.source_mr = dev.reg(e.source.data(), e.source.size());
    e.sink_mr = dev.reg(e.sink.data(), e.sink.size());
  }
}

void client::connect_all() {
  std::mt19937_64 random{1};
  for (std::uint32_t i = 0; i < ends_.size(); ++i) rebuild(i, random);
}

/// Under the pair's exclusive lock.
void client::rebuild(std::uint32_t pair, std::mt19937_64& random) {
  end& e = ends_[pair];
  const std::uint64_t epoch = ++e.epoch;  // Completions of the old queue pair mean nothing now.
  for (slot_word& p : e.slots) p = word(epoch, slot_free);
  if (e.qp && random() % 2 == 0) {
    rig::to_reset(e.qp.get());
  } else {
    e.qp = rig::make_qp(device_, e.cq, e.cq, {.sends = 2 * ops, .receives = 1});
  }
  rebuild_order order{pair, {}, e.delivered, !e.uncertain};
  order.client = {e.qp->qp_num, 0, 0, device_.gid, static_cast<std::uint32_t>(random()) & 0xffffff};
  e.peer = rebuild_(order);
  rig::to_init(e.qp.get());
  rig::connect(e.qp.get(), device_, e.peer, {.psn = order.client.psn});
  e.words.fill(0);
  e.delivered = 0;
  e.uncertain = false;
  e.may_fail = false;
  e.broken = false;
  ++rebuilds_;
}

void client::dispatch(ibv_cq* cq) {
  ibv_wc entries[16];
  const int n = ibv_poll_cq(cq, std::size(entries), entries);
  if (n < 0) throw std::runtime_error{"ibv_poll_cq"};
  for (const ibv_wc& wc : std::span{entries}.first(static_cast<std::size_t>(n))) {
    end& e = ends_.at(wc.wr_id >> pair_shift);
    const std::uint64_t epoch = wc.wr_id & epoch_mask;
    std::uint64_t expected = word(epoch, slot_taken);
    slot_word& slot = e.slots.at((wc.wr_id >> slot_shift) & 0xff);
    // Publishes what the operation brought to whoever waits for the slot.
    slot.compare_exchange_strong(expected, word(epoch, slot_done + wc.status),
                                 std::memory_order_acq_rel);
  }
}

bool client::take_slot(end& e, std::uint32_t slot) {
  std::uint64_t expected = word(e.epoch, slot_free);
  return e.slots[slot].compare_exchange_strong(expected, word(e.epoch, slot_taken));
}

ibv_wc_status client::await(end& e, std::uint32_t slot, const std::function<void()>& meanwhile) {
  const auto deadline = rig::clock::now() + rig::patience;
  const std::uint64_t epoch = e.epoch;
  for (;;) {
    const std::uint64_t at = e.slots[slot].load(std::memory_order_acquire);
    if (at >= word(epoch, slot_done)) {
      ++operations_;
      return static_cast<ibv_wc_status>((at & 0xff) - slot_done);
    }
    dispatch(e.cq);
    meanwhile();
    if (verdict_.over()) return IBV_WC_GENERAL_ERR;
    if (rig::clock::now() > deadline) {
      throw std::runtime_error{"no completion on qp " + std::to_string(e.qp->qp_num)};
    }
  }
}

void client::expect_success(ibv_wc_status status, end& e, const char* what) {
  if (status == IBV_WC_SUCCESS || verdict_.over()) return;
  // Another thread may have made this queue pair fail, on purpose.
  if (status == IBV_WC_WR_FLUSH_ERR && e.may_fail) {
    e.broken = true;
    return;
  }
  verdict_.fail(std::string{what} + " ended with " + ibv_wc_status_str(status));
}

void client::run_operation(std::mt19937_64& random, const std::function<void()>& meanwhile) {
  const auto pair = static_cast<std::uint32_t>(random() % ends_.size());
  end& e = ends_[pair];
  if (e.broken) revive(pair, random, meanwhile);
  const std::shared_lock lock{e.mutex};
  if (e.broken) return;
  use u{e, pair, random, meanwhile, e.epoch};
  for (std::uint32_t i = 0; i < ops && u.slots.size() < 1 + random() % 4; ++i) {
    const auto slot = static_cast<std::uint32_t>(random() % ops);
    if (take_slot(e, slot)) u.slots.push_back(slot);
  }
  if (!u.slots.empty()) {
    switch (random() % 64) {
      case 0: fall(u); break;
      case 1: drain(u); break;
      case 2:
      case 3:
      case 4:
      case 5: write_fickle(u); break;
      default:
        switch (random() % 3) {
          case 0: send_burst(u); break;
          case 1: write_and_read(u); break;
          default: atomics(u);
        }
    }
  }
  for (const std::uint32_t slot : u.slots) e.slots[slot] = word(u.epoch, slot_free);
}

void client::revive(std::uint32_t pair, std::mt19937_64& random,
                    const std::function<void()>& meanwhile) {
  end& e = ends_[pair];
  std::unique_lock lock{e.mutex, std::try_to_lock};
  if (!lock || !e.broken) return meanwhile();
  rebuild(pair, random);
}

void client::send_burst(use& u) {
  std::vector<std::uint32_t> sent;
  for (const std::uint32_t slot : u.slots) {
    const std::size_t bytes = 1 + u.random() % (u.random() % 4 == 0 ? message_bytes : 64);
    const auto fill = static_cast<int>(u.random() & 0xff);
    std::memset(&u.e.source[slot_at(slot)], fill, bytes);
    const bool immediate = u.random() % 2 == 0;
    rig::request r{immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, u.id(slot),
                   u.source(slot, bytes)};
    if (immediate) r.wr.imm_data = static_cast<std::uint32_t>(bytes);
    if (bytes <= 64 && u.random() % 2 == 0) r.wr.send_flags |= IBV_SEND_INLINE;
    u.post(r);
  }
  for (const std::uint32_t slot : u.slots) {
    const ibv_wc_status status = await(u.e, slot, u.meanwhile);
    if (status == IBV_WC_SUCCESS) {
      ++u.e.delivered;
    } else {
      u.e.uncertain = true;  // A flushed message may have been delivered.
    }
    expect_success(status, u.e, "a SEND");
  }
}

void client::write_and_read(use& u) {
  const std::uint32_t slot = u.slots[0];
  const std::size_t bytes = 1 + u.random() % slot_bytes(slot);
  std::byte* const source = &u.e.source[slot_at(slot)];
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t noise = u.random();
    std::memcpy(source + i, &noise, std::min<std::size_t>(8, bytes - i));
  }
  const std::uint64_t target = u.e.peer.address + slot_at(slot);
  // Unsignaled: its slot in the send queue is free with the READ's completion.
  rig::request write{IBV_WR_RDMA_WRITE, u.id(slot), u.source(slot, bytes), 0};
  rig::request read{IBV_WR_RDMA_READ, u.id(slot), u.sink(slot, bytes)};
  write.to(target, u.e.peer.rkey);
  read.to(target, u.e.peer.rkey);
  if (u.random() % 2 == 0) {
    write.wr.sg_list = &write.sge;
    write.wr.next = &read.wr;
    read.wr.sg_list = &read.sge;
    u.post(write);
  } else {
    u.post(write);
    u.post(read);
  }
  const ibv_wc_status status = await(u.e, slot, u.meanwhile);
  if (status == IBV_WC_SUCCESS && std::memcmp(source, &u.e.sink[slot_at(slot)], bytes) != 0) {
    verdict_.fail("a READ brought something else than the WRITE before it wrote");
  }
  expect_success(status, u.e, "WRITE and READ");
}

void client::atomics(use& u) {
  for (const std::uint32_t slot : u.slots) {
    const std::uint64_t target = u.e.peer.address + words_at + slot * 8;
    const bool swap = u.random() % 2 == 0;
    const std::uint64_t before = u.e.words[slot];
    const std::uint64_t operand = u.random();
    const bool matches = u.random() % 2 == 0;
    rig::request r{swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, u.id(slot),
                   u.sink(slot, 8)};
    r.to(target, u.e.peer.rkey);
    if (swap) {
      r.operands(matches ? before : before + 1, operand);
      if (matches) u.e.words[slot] = operand;
    } else {
      r.operands(operand);
      u.e.words[slot] += operand;
    }
    u.post(r);
    const ibv_wc_status status = await(u.e, slot, u.meanwhile);
    std::uint64_t found = 0;
    std::memcpy(&found, &u.e.sink[slot_at(slot)], 8);
    if (status == IBV_WC_SUCCESS && found != before) verdict_.fail("an atomic lost its count");
    expect_success(status, u.e, "an atomic");
    if (status != IBV_WC_SUCCESS) return;
  }
}

/// Into a region that its owner may deregister at this moment.
void client::write_fickle(use& u) {
  const std::uint32_t slot = u.slots[0];
  rig::request read{IBV_WR_RDMA_READ, u.id(slot), u.sink(slot, 16)};
  read.to(u.e.peer.address + fickle_rkey_at, u.e.peer.rkey);
  u.post(read);
  const ibv_wc_status found = await(u.e, slot, u.meanwhile);
  expect_success(found, u.e, "a READ of a key");
  if (found != IBV_WC_SUCCESS) return;
  std::uint64_t rkey = 0;
  std::uint64_t address = 0;
  std::memcpy(&rkey, &u.e.sink[slot_at(slot)], 8);
  std::memcpy(&address, &u.e.sink[slot_at(slot) + 8], 8);
  if (rkey == 0) return;
  u.e.slots[slot] = word(u.epoch, slot_taken);
  u.e.may_fail = true;
  std::memset(&u.e.source[slot_at(slot)], 0x55, 64);
  rig::request write{IBV_WR_RDMA_WRITE, u.id(slot), u.source(slot, 64)};
  write.to(address, static_cast<std::uint32_t>(rkey));
  u.post(write);
  const ibv_wc_status status = await(u.e, slot, u.meanwhile);
  if (status == IBV_WC_REM_ACCESS_ERR) {
    u.e.broken = true;
  } else {
    expect_success(status, u.e, "a WRITE into a region that comes and goes");
  }
}

/// A forbidden access takes the queue pair down.
void client::fall(use& u) {
  const std::uint32_t slot = u.slots[0];
  u.e.may_fail = u.e.broken = true;  // First: others' requests are flushed from now on.
  rig::request r{IBV_WR_RDMA_WRITE, u.id(slot), u.source(slot, 64)};
  r.to(u.e.peer.address + server_bytes - 32, u.e.peer.rkey);
  u.post(r);
  const ibv_wc_status status = await(u.e, slot, u.meanwhile);
  if (status != IBV_WC_REM_ACCESS_ERR && status != IBV_WC_WR_FLUSH_ERR && !verdict_.over()) {
    verdict_.fail(std::string{"a WRITE beyond a region ended with "} + ibv_wc_status_str(status));
  }
}

/// Posted requests come back when the queue pair goes to the error state.
void client::drain(use& u) {
  u.e.may_fail = u.e.broken = true;
  for (const std::uint32_t slot : u.slots) {
    rig::request r{IBV_WR_RDMA_WRITE, u.id(slot), u.source(slot, slot_bytes(slot))};
    r.to(u.e.peer.address + slot_at(slot), u.e.peer.rkey);
    u.post(r);
  }
  rig::to_error(u.e.qp.get());
  for (const std::uint32_t slot : u.slots) {
    expect_success(await(u.e, slot, u.meanwhile), u.e, "a WRITE that was cut short");
  }
}

}  // namespace stress
