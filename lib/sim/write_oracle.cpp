#include "write_oracle.hpp"

#include "host_state.hpp"
#include "memory_oracle.hpp"
#include "world_state.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace cordma::sim::detail {
namespace {

const std::byte* pointer(std::uint64_t address) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): verbs have addresses as numbers.
  return reinterpret_cast<const std::byte*>(address);
}

bool is_fetching(ibv_wr_opcode opcode) noexcept {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

}  // namespace

write_oracle::ticket write_oracle::posted(const host_state& target, const ibv_send_wr& wr) {
  request made{.number = ++count_, .address = wr.wr.rdma.remote_addr, .content = {}};
  ticket given{target.number(), wr.wr.rdma.rkey, made.number};
  if (is_fetching(wr.opcode)) {
    made.address = wr.wr.atomic.remote_addr;
    made.bytes = sizeof(std::uint64_t);
    given.rkey = wr.wr.atomic.rkey;
  } else {
    for (const ibv_sge& piece : std::span{wr.sg_list, std::size_t(wr.num_sge)})
      made.content.insert(made.content.end(), pointer(piece.addr),
                          pointer(piece.addr) + piece.length);
    made.bytes = made.content.size();
  }
  requests_[{given.host, given.rkey}].push_back(std::move(made));
  return given;
}

void write_oracle::forget(const ticket& of) {
  const auto to = requests_.find({of.host, of.rkey});
  if (to == requests_.end()) return;
  const auto one = std::ranges::find(to->second, of.number, &request::number);
  if (one != to->second.end()) to->second.erase(one);
}

void write_oracle::succeeded(const host_state& requester, const ticket& of) {
  const auto to = requests_.find({of.host, of.rkey});
  if (to == requests_.end()) return;
  const auto one = std::ranges::find(to->second, of.number, &request::number);
  if (one == to->second.end()) return;
  // The address of a request is one of its target's memory only if cordma gave it out.
  if (one->landed < one->bytes && !is_stopped_ && memory_.was_lent(of.host, of.rkey))
    world_.find("a WRITE or an atomic of host " + requester.name() + " succeeds, and " +
                std::to_string(one->landed) + " of its " + std::to_string(one->bytes) +
                " bytes have landed");
  to->second.erase(one);
}

void write_oracle::landed(const host_state& target, std::uint64_t address, std::uint64_t bytes,
                          std::uint32_t rkey) {
  if (is_stopped_) return;
  bool is_posted = false, is_as_posted = false;
  if (const auto to = requests_.find({target.number(), rkey}); to != requests_.end()) {
    // The piece may be of any request for this range, and so it counts for each that fits.
    for (request& one : to->second) {
      if (address < one.address || address + bytes > one.address + one.bytes) continue;
      is_posted = true;
      if (!one.content.empty() &&
          std::memcmp(pointer(address), one.content.data() + (address - one.address), bytes) != 0)
        continue;
      one.landed += bytes;
      is_as_posted = true;
    }
  }
  if (is_as_posted) return;
  if (is_posted)
    world_.find("a WRITE lands in memory of host " + target.name() +
                " with other bytes than were posted");
  else if (memory_.was_lent(target.number(), rkey))
    world_.find("a peer wrote " + std::to_string(bytes) + " bytes into memory of host " +
                target.name() + " for which it posted no request");
}

void write_oracle::forget(const host_state& target) {
  std::erase_if(requests_, [&](const auto& to) { return to.first.first == target.number(); });
}

}  // namespace cordma::sim::detail
