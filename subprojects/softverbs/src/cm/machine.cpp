#include "cm/machine.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

namespace softverbs::cm {

/// The commands in the order of their numbers. Null: another function serves the command, or the
/// kernel has none with that number.
struct machine::entry {
  handler served_by;
};

const machine::entry machine::commands[] = {
    {&machine::create_id},           // RDMA_USER_CM_CMD_CREATE_ID
    {&machine::destroy_id},          // DESTROY_ID
    {&machine::bind_ip},             // BIND_IP
    {&machine::resolve_ip},          // RESOLVE_IP
    {&machine::resolve_route},       // RESOLVE_ROUTE
    {&machine::query_route},         // QUERY_ROUTE
    {&machine::connect},             // CONNECT
    {&machine::listen},              // LISTEN
    {&machine::accept},              // ACCEPT
    {&machine::reject},              // REJECT
    {&machine::disconnect},          // DISCONNECT
    {&machine::init_qp_attr},        // INIT_QP_ATTR
    {nullptr},                       // GET_EVENT: see get_event()
    {nullptr},                       // GET_OPTION
    {&machine::set_option},          // SET_OPTION
    {&machine::notify},              // NOTIFY
    {&machine::join_ip},             // JOIN_IP_MCAST
    {&machine::leave},               // LEAVE_MCAST
    {nullptr},                       // MIGRATE_ID: see migrate_id()
    {&machine::query},               // QUERY
    {&machine::bind_address},        // BIND
    {&machine::resolve_address},     // RESOLVE_ADDR
    {&machine::join},                // JOIN_MCAST
    {&machine::resolve_ib_service},  // RESOLVE_IB_SERVICE
    {&machine::write_event},         // WRITE_CM_EVENT
};

int machine::open_network() noexcept {
  network_ = host_.make_transport(*this);
  return network_ ? 0 : ENOMEM;
}

machine::~machine() {
  // Bindings and conversations of the transport must not outlive it.
  identifiers_.clear();
}

int machine::serve(channel& in, std::uint32_t number, const command_body& body,
                   const channel_finder& find_channel) {
  if (number >= std::size(commands)) return EINVAL;
  if (number == RDMA_USER_CM_CMD_MIGRATE_ID) return migrate_id(in, body, find_channel);
  const handler found = commands[number].served_by;
  return found == nullptr ? ENOSYS : (this->*found)(in, body);
}

int machine::check_get_event(const command_body& body) noexcept {
  // Programs built before ECE have shorter events.
  constexpr std::size_t shortest = offsetof(rdma_ucm_event_resp, reserved);
  if (body.out_bytes < shortest) return ENOSPC;
  rdma_ucm_get_event command;
  return body.read(command);
}

bool machine::get_event(channel& in, const command_body& body, int& error) noexcept {
  const event* const first = in.first();
  if (first == nullptr) return false;
  rdma_ucm_get_event command;
  error = body.read(command);
  if (error == 0)
    error = write_answer(command.response, &first->answer,
                         std::min(body.out_bytes, sizeof first->answer));
  if (error != 0) {
    in.untake();
    return true;
  }
  identifier& of = *first->of;
  ++of.events_reported;
  if (first->group != nullptr) ++first->group->events_reported;
  const bool was_request = first->made != nullptr;
  if (was_request) first->made->told_in = nullptr;
  in.pop();
  if (was_request) {
    ++of.backlog;
    admit_waiting(of);
  }
  return true;
}

void machine::close(channel& in) noexcept {
  for (const auto& one : identifiers_)
    if (one && one->reports_to == &in) destroy(*one);
}

void machine::run(time now) noexcept {
  if (network_) network_->run(now);
  if (now < next_) return;
  time next = time::max();
  for (const auto& one : identifiers_) {
    if (!one) continue;
    if (one->deadline <= now) on_deadline(*one);
    next = std::min(next, one->deadline);
  }
  next_ = next;
}

// ---- the table of identifiers

identifier& machine::create(channel& in) {
  while (lowest_free_ < identifiers_.size() && identifiers_[lowest_free_]) ++lowest_free_;
  if (lowest_free_ == identifiers_max) throw std::bad_alloc{};
  if (lowest_free_ == identifiers_.size()) identifiers_.emplace_back();
  auto made = std::make_unique<identifier>(*this, in, lowest_free_);
  std::uint32_t random = 0;
  (void)!::getrandom(&random, sizeof random, GRND_NONBLOCK);
  made->local_psn = random & 0xffffff;
  return *(identifiers_[lowest_free_++] = std::move(made));
}

std::uint32_t machine::destroy(identifier& one) noexcept {
  switch (one.exchange) {
    case cm_state::request_sent: send_reject(one, reject_reason::timeout, nullptr, 0); break;
    case cm_state::request_received:
    case cm_state::reply_sent:
    case cm_state::reply_received:
      send_reject(one, reject_reason::consumer_defined, nullptr, 0);
      break;
    case cm_state::sidr_request_received:
      send_sidr_reply(one, sidr_status::reject, nullptr, 0);
      break;
    case cm_state::established:
      if (one.talk) one.talk->send(plain_message(message_kind::disconnect_request));
      break;
    case cm_state::disconnect_received:
      if (one.talk) one.talk->send(plain_message(message_kind::disconnect_reply));
      break;
    case cm_state::none:
    case cm_state::idle:
    case cm_state::listen:
    case cm_state::disconnect_sent:
    case cm_state::timewait:
    case cm_state::sidr_request_sent: break;
  }
  while (!one.groups.empty()) leave_group(one.groups.front());
  for (waiting_request& waits : one.waiting)
    refuse(*waits.from, waits.request, reject_reason::consumer_defined, sidr_status::reject);
  // Connections that the program was never told of end with their listener.
  one.reports_to->revoke([&](const event& waits) { return waits.of == &one; },
                         [&](const event& waits) {
                           if (waits.made != nullptr) destroy(*waits.made);
                         });
  // The program may know the number of a connection before it reads the connect request.
  if (one.told_in != nullptr)
    one.told_in->revoke([&](const event& waits) { return waits.made == &one; },
                        [](const event& waits) { ++waits.of->backlog; });
  const std::uint32_t reported = one.events_reported;
  lowest_free_ = std::min(lowest_free_, one.number);
  identifiers_[one.number].reset();
  return reported;
}

int machine::find(const channel& in, std::uint32_t number, identifier*& found) noexcept {
  if (number >= identifiers_.size() || !identifiers_[number]) return ENOENT;
  if (identifiers_[number]->reports_to != &in) return EINVAL;
  found = identifiers_[number].get();
  return 0;
}

int machine::find_with_device(const channel& in, std::uint32_t number,
                              identifier*& found) noexcept {
  if (const int error = find(in, number, found)) return error;
  return found->has_device ? 0 : EINVAL;
}

// ---- deadlines

void machine::set_deadline(identifier& one, time when) noexcept {
  one.deadline = when;
  if (when >= next_) return;
  next_ = when;
  host_.on_earlier_deadline();
}

/// The kernel sends a message again and again; the transport loses nothing, so here a message is
/// sent once.
void machine::wait_for_answer(identifier& one) noexcept {
  set_deadline(one, host_.now() + one.answer_time);
}

/// Sends the request. False: out of memory or descriptors.
bool machine::ask(identifier& one) noexcept {
  one.talk = network_->start(one.request, one);
  if (one.talk) wait_for_answer(one);
  return one.talk != nullptr;
}

/// Plans another search for a listener. False: nobody has listened for long enough.
bool machine::ask_later(identifier& one) noexcept {
  const time now = host_.now();
  if (now >= one.search_ends) return false;
  set_deadline(one, now + search_period);
  return true;
}

}  // namespace softverbs::cm
