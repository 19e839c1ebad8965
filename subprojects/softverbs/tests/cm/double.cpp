#include "double.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace softverbs::cm::test {

namespace {

bool is_zero(const in6_addr& one) { return std::memcmp(&one, &in6addr_any, sizeof one) == 0; }

bool is_wildcard(const endpoint& one) { return address{one}.is_wildcard() || is_zero(one.address); }

}  // namespace

double_binding::double_binding(double_transport& in, std::uint16_t space_of,
                               const endpoint& name_of)
    : owner{in}, space{space_of}, name{name_of} {
  owner.all.names.push_back(this);
}

double_binding::~double_binding() {
  std::erase(owner.all.names, this);
  std::erase_if(owner.arrivals, [&](const auto& one) { return one.name == this; });
}

double_conversation::double_conversation(double_transport& in) : owner{in} {
  owner.live.insert(this);
}

double_conversation::~double_conversation() {
  owner.live.erase(this);
  if (peer == nullptr) return;
  peer->peer = nullptr;
  peer->ends = ECONNRESET;
}

void double_conversation::send(const message& what) noexcept {
  if (peer != nullptr) peer->inbox.push_back(what);
}

void double_transport::run(time) noexcept {
  for (; !arrivals.empty(); worked = true) {
    arrival one = std::move(arrivals.front());
    arrivals.pop_front();
    listens.on_request(*one.name, std::move(one.from), one.request);
  }
  for (double_conversation* one : std::set<double_conversation*>{live}) {
    while (live.count(one) != 0 && one->hears != nullptr && !one->inbox.empty()) {
      const message next = one->inbox.front();
      one->inbox.pop_front();
      worked = true;
      one->hears->on_message(next);
    }
    if (live.count(one) == 0 || one->hears == nullptr || !one->ends) continue;
    const int error = *one->ends;
    one->ends.reset();
    worked = true;
    one->hears->on_end(error);
  }
}

std::unique_ptr<binding> double_transport::bind(std::uint16_t space, const endpoint& wanted, bool,
                                                bool, int& error) noexcept {
  error = std::exchange(all.bind_error, 0);
  endpoint name = wanted;
  if (name.port == 0) name.port = all.next_port++;
  for (const double_binding* other : all.names)
    if (other->space == space && other->name.port == name.port) error = EADDRINUSE;
  if (error != 0) return nullptr;
  return std::make_unique<double_binding>(*this, space, name);
}

std::unique_ptr<conversation> double_transport::start(const message& request,
                                                      conversation::user& of) noexcept {
  auto here = std::make_unique<double_conversation>(*this);
  here->set_user(of);
  if (all.silent) return here;
  const auto found = std::find_if(all.names.begin(), all.names.end(), [&](auto* one) {
    return one->listens && one->space == request.space &&
           one->name.port == request.destination.port &&
           (is_wildcard(one->name) || one->name == request.destination);
  });
  if (found == all.names.end()) {
    here->ends = ECONNREFUSED;
    return here;
  }
  double_transport& other = (*found)->owner;
  auto there = std::make_unique<double_conversation>(other);
  there->host = all.peer_host;
  here->peer = there.get();
  there->peer = here.get();
  other.arrivals.push_back({*found, std::move(there), request});
  return here;
}

std::unique_ptr<transport> process::make_transport(transport::listener& to) noexcept {
  auto made = std::make_unique<double_transport>(all, to);
  net = made.get();
  return made;
}

void process::open() {
  install_fault_guard();                           // Opening the file installs the guard, too.
  if (rdma_cm->open_network() != 0) std::abort();  // The double can always be made.
}

void process::die() {
  const std::set<double_conversation*> mine = net->live;
  for (double_conversation* one : mine) {
    if (one->peer != nullptr) {
      one->peer->ends = ECONNRESET;
      one->peer->peer = nullptr;
    }
    one->peer = nullptr;
  }
}

bool process::run() {
  net->worked = false;
  rdma_cm->run(all.now);
  return net->worked;
}

}  // namespace softverbs::cm::test
