#include "cm/identifier.hpp"

#include "cm/machine.hpp"

#include <algorithm>
#include <cassert>
#include <initializer_list>

namespace softverbs::cm {

namespace {

template <class State>
bool among(State one, std::initializer_list<State> all) noexcept {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

bool allowed(id_state from, id_state to) noexcept {
  using enum id_state;
  switch (from) {
    case idle: return to == bound;
    case bound: return among(to, {address_resolved, listen});
    case address_resolved: return to == route_resolved;
    case route_resolved: return to == connect;
    case connect: return to == disconnect;
    case disconnect:
    case listen: return false;
  }
  return false;
}

bool allowed(cm_state from, cm_state to) noexcept {
  using enum cm_state;
  switch (from) {
    case none:
      return among(
          to, {listen, request_sent, request_received, sidr_request_sent, sidr_request_received});
    case request_sent: return among(to, {reply_received, idle});
    case request_received: return among(to, {reply_sent, idle});
    case reply_sent: return among(to, {established, disconnect_received, timewait, idle});
    case reply_received: return among(to, {established, timewait, idle});
    case established: return among(to, {disconnect_sent, disconnect_received, timewait});
    case disconnect_sent: return among(to, {disconnect_received, timewait});
    case disconnect_received: return to == timewait;
    case timewait:
    case sidr_request_sent:
    case sidr_request_received: return to == idle;
    case idle:
    case listen: return false;
  }
  return false;
}

void identifier::enter(id_state next) noexcept {
  assert(allowed(state, next));
  state = next;
}

void identifier::enter(cm_state next) noexcept {
  assert(allowed(exchange, next));
  exchange = next;
}

ibv_gid identifier::destination_gid() const noexcept {
  return target.family() != 0 ? target.gid() : destination.gid();
}

void identifier::on_message(const message& from_peer) noexcept {
  owner.on_message(*this, from_peer);
}
void identifier::on_end(int error) noexcept { owner.on_end(*this, error); }

void waiting_request::on_message(const message&) noexcept { on_end(0); }

void waiting_request::on_end(int) noexcept {
  listener.waiting.remove_if([this](const waiting_request& one) { return &one == this; });
}

}  // namespace softverbs::cm
