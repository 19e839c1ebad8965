#include "fuzz/rdmacm_program.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace softverbs::fuzz {

using namespace softverbs::cm;

namespace {

bool are_zero(const std::uint8_t* bytes, std::size_t count) noexcept {
  static constexpr std::uint8_t zeros[RDMA_MAX_PRIVATE_DATA]{};
  return count <= sizeof zeros && std::memcmp(bytes, zeros, count) == 0;
}

/// The private data that an event of a connection shows: of a fixed length, whatever was sent.
std::size_t private_bytes_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::connect_request: return request_private_bytes;
    case event_kind::connect_response: return reply_private_bytes;
    case event_kind::rejected: return reject_private_bytes;
    default: return 0;
  }
}

std::size_t datagram_bytes_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::connect_request: return sidr_request_private_bytes;
    case event_kind::established: return sidr_reply_private_bytes;
    case event_kind::unreachable: return sidr_reply_private_bytes;
    default: return 0;
  }
}

void check_parameters(const event& one, event_kind kind) noexcept {
  const auto& answer = one.answer;
  if (kind == event_kind::user || kind == event_kind::internal) return;
  if (kind == event_kind::multicast_join || one.of->is_datagram()) {
    const auto& ud = answer.param.ud;
    must(ud.qp_num <= number_max, "a datagram's number has more than 24 bits");
    const bool is_late = kind == event_kind::unreachable && ud.private_data_len == 0;
    must(is_late || ud.private_data_len == datagram_bytes_of(kind),
         "a datagram's private data has another length");
    must(are_zero(ud.private_data + ud.private_data_len,
                  sizeof ud.private_data - ud.private_data_len),
         "a datagram's private data is too long");
    return;
  }
  const auto& conn = answer.param.conn;
  must(conn.private_data_len == private_bytes_of(kind), "private data has another length");
  must(are_zero(conn.private_data + conn.private_data_len,
                sizeof conn.private_data - conn.private_data_len),
       "private data is too long");
  must(conn.qp_num <= number_max, "a number has more than 24 bits");
  must(conn.retry_count <= retries_max && conn.rnr_retry_count <= retries_max,
       "a retry count has 3 bits");
}

/// An exchange that waits for an answer, or for the network to be empty.
bool waits(cm_state now) noexcept {
  return now == cm_state::request_sent || now == cm_state::reply_sent ||
         now == cm_state::disconnect_sent || now == cm_state::timewait ||
         now == cm_state::sidr_request_sent;
}

bool has_talk(cm_state now) noexcept {
  return now != cm_state::none && now != cm_state::idle && now != cm_state::listen &&
         now != cm_state::timewait;
}

}  // namespace

open_file::open_file()
    : counter{::eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC)},
      events{unique_fd{::dup(counter.get())}} {}

program::program(test::network& all, std::array<open_file, files>& open_files)
    : process_{all}, files_{open_files} {
  for (open_file& one : files_) one.events.has_engine = false;
}

// ---- what the program knows

program::known& program::at(std::uint32_t number) noexcept {
  static known nobody;
  if (number >= known_.size()) return nobody = {};
  return known_[number];
}

void program::know(std::uint32_t number, const known& what) noexcept {
  must(number < identifiers_max, "an identifier has a number that librdmacm does not know");
  if (number >= known_.size()) known_.resize(number + 1);
  known_[number] = what;
}

/// Mostly a number of an identifier, told or not.
std::uint32_t program::some_id(script& in) const noexcept {
  const std::uint8_t what = in.byte();
  if (what >= 252) return in.take<std::uint32_t>();
  return what % static_cast<std::uint32_t>(known_.size() + 1);
}

/// Mostly the file that has the identifier.
std::size_t program::file_of(std::uint32_t id, script& in) const noexcept {
  const std::uint8_t what = in.byte();
  if (what >= 16 && id < known_.size() && known_[id].is_known) return known_[id].in;
  return what % files;
}

std::uint64_t program::new_uid(script& in, history::role of) noexcept {
  if (in.byte() == 0) return 0;
  told_.push_back({of});
  return told_.size() - 1;
}

void program::forget(std::uint32_t number) noexcept {
  known& old = at(number);
  told_[old.uid].is_gone = old.uid != 0;
  old = {};
  std::erase_if(groups_, [&](const joined& one) {
    if (one.of == number) told_[one.uid].is_gone = one.uid != 0;
    return one.of == number;
  });
}

void program::close(std::size_t file) noexcept {
  open_file& which = files_[file];
  process_.rdma_cm->close(which.events);
  must(which.events.first() == nullptr, "an event of a closed file is left");
  for (std::uint32_t n = 0; n < known_.size(); ++n)
    if (known_[n].is_known && known_[n].in == file) forget(n);
}

// ---- events

void program::read_event(script& in) noexcept {
  const std::uint8_t what = in.byte();
  open_file& from = files_[what % files];
  rdma_ucm_event_resp result{};
  const bool is_bad = what / 2 == 127;
  const rdma_ucm_get_event command{is_bad ? 0 : number_of(&result)};
  const std::size_t room = what / 2 == 126 ? in.byte() : sizeof result;
  const command_body body{&command, sizeof command, room};
  if (machine::check_get_event(body) != 0) return;
  std::uint64_t count = 0;
  const bool has_count = ::read(from.counter.get(), &count, sizeof count) == sizeof count;
  const event* const first = from.events.first();
  must(has_count == (first != nullptr), "a file is readable without an event, or the reverse");
  if (first == nullptr) return;
  const event before = *first;
  const std::uint32_t of = before.of->number;
  const bool is_of_us = before.made != nullptr && before.made->reports_to == &from.events;
  const std::uint32_t made = before.made != nullptr ? before.made->number : 0;
  int error = 0;
  must(process_.rdma_cm->get_event(from.events, body, error), "an event is lost");
  if (is_bad) return must(error == EFAULT, "an event is written to nowhere");
  must(error == 0, "an event cannot be read");
  if (room < sizeof result) std::memcpy(&result, &before.answer, sizeof result);
  must(std::memcmp(&result, &before.answer, offsetof(rdma_ucm_event_resp, reserved)) == 0,
       "another event is read");
  ++at(of).reported;
  if (before.made != nullptr && !at(made).is_known)
    know(made, {true, false, at(made).uid, 0, (is_of_us ? what : what + 1u) % files});
  take(result, before);
}

void program::take(const rdma_ucm_event_resp& one, const event& before) noexcept {
  const auto kind = static_cast<event_kind>(one.event);
  if (kind == event_kind::user || kind == event_kind::internal) return;
  must(one.uid < told_.size(), "an event of a uid that nobody gave");
  if (one.uid == 0)
    return must(before.made != nullptr || before.group != nullptr, "an event without a uid");
  history& of = told_[one.uid];
  must(!of.is_gone, "an event of what was destroyed");
  take_in_order(of, kind);
}

/// The kernel's order. Only an active side hears CONNECT_RESPONSE, and only a passive one, or one
/// of datagrams, ESTABLISHED.
void program::take_in_order(history& of, event_kind kind) noexcept {
  using enum history::stage;
  const auto next = [&](bool holds, history::stage to, const char* what) {
    must(holds, what);
    of.at = to;
  };
  const bool is_created = of.of == history::role::created;
  const bool is_accepted = of.of == history::role::accepted;
  const bool asks = is_created && of.has_asked && of.at == route;
  switch (kind) {
    case event_kind::address_resolved:
      return next(is_created && of.at == start, address, "ADDR_RESOLVED is out of order");
    case event_kind::address_error:
      if (is_created && of.at == start) return;
      return next(asks && of.is_datagram, over, "ADDR_ERROR is out of order");
    case event_kind::route_resolved:
      return next(is_created && of.at == address, route, "ROUTE_RESOLVED is out of order");
    case event_kind::connect_request:
      return must(is_created && of.listens && of.at == start, "CONNECT_REQUEST is out of order");
    case event_kind::connect_response:
      return next(asks && !of.is_datagram, response, "CONNECT_RESPONSE is out of order");
    case event_kind::unreachable:
      return next(asks || (is_created && of.at == response) || (is_accepted && of.at == start),
                  over, "UNREACHABLE is out of order");
    case event_kind::rejected:
      return next((asks && !of.is_datagram) || (is_created && of.at == response) ||
                      (is_accepted && (of.at == start || of.at == established)),
                  over, "REJECTED is out of order");
    case event_kind::established:
      return next((asks && of.is_datagram) || (is_accepted && of.at == start),
                  is_accepted ? established : over, "ESTABLISHED is out of order");
    case event_kind::disconnected:
      return next((is_created && of.at == response) ||
                      (is_accepted && (of.at == start || of.at == established)),
                  disconnected, "DISCONNECTED is out of order");
    case event_kind::timewait_exit:
      return next(of.at == disconnected, over, "TIMEWAIT_EXIT is out of order");
    case event_kind::multicast_join:
      return next(of.of == history::role::group && of.at == start, over,
                  "MULTICAST_JOIN is out of order");
    case event_kind::user:
    case event_kind::internal: return;
  }
  violated("an event that nobody knows");
}

// ---- what always holds

void program::check() const noexcept {
  for (const open_file& file : files_)
    file.events.for_each([&](const event& one) {
      must(one.of->reports_to == &file.events,
           "an event waits in another file than its identifier");
      const auto kind = static_cast<event_kind>(one.answer.event);
      check_parameters(one, kind);
      if (one.made != nullptr) {
        must(kind == event_kind::connect_request && one.made->told_in == &file.events,
             "a connection request is not where its connection says");
        must(one.answer.id == one.made->number && one.answer.uid == one.of->user,
             "a connection request of others");
        must(one.of->state == id_state::listen && one.of->backlog >= 0,
             "a connection request of nobody who listens");
      } else if (one.group != nullptr) {
        must(one.group->of == one.of && one.answer.id == one.group->number &&
                 one.answer.uid == one.group->user,
             "an event of another group");
      } else {
        must(one.answer.id == one.of->number, "an event of another identifier");
        must(kind == event_kind::user || kind == event_kind::internal ||
                 one.answer.uid == one.of->user,
             "an event with another uid");
      }
    });
  for (const test::double_conversation* talk : process_.net->live) {
    if (const auto* listener = dynamic_cast<const waiting_request*>(talk->hears)) {
      must(listener->listener.state == id_state::listen, "a request waits for nobody");
      must(listener->listener.waiting.size() <= std::size_t{waiting_max}, "too many wait");
    }
    const auto* one = dynamic_cast<const identifier*>(talk->hears);
    if (one == nullptr) continue;
    must(one->talk.get() == talk, "an identifier has lost its conversation");
    must(has_talk(one->exchange), "a conversation of an exchange that is over");
    must(one->state == id_state::connect || one->state == id_state::disconnect,
         "a conversation of an identifier that does not connect");
    must(waits(one->exchange) == (one->deadline != node_service::time::max()),
         "an exchange that waits has no deadline, or the reverse");
    must(process_.rdma_cm->deadline() <= one->deadline, "a deadline is missed");
    must(one->remote_qpn <= number_max && one->remote_psn <= number_max, "more than 24 bits");
  }
}

void program::check_settled() noexcept {
  for (const test::double_conversation* talk : process_.net->live)
    if (const auto* one = dynamic_cast<const identifier*>(talk->hears))
      must(!waits(one->exchange), "an exchange waits for ever");
  // An event of each identifier shows also those without a conversation.
  write_event_command body{};
  body.event = static_cast<std::uint32_t>(event_kind::user);
  for (body.id = 0; body.id < known_.size(); ++body.id)
    if (known_[body.id].is_known)
      must(serve_bytes(known_[body.id].in, write_event_number, &body, sizeof body, 0) == 0,
           "an identifier is lost");
  for (const open_file& file : files_)
    file.events.for_each([](const event& one) {
      must(!waits(one.of->exchange), "an exchange without a conversation waits for ever");
    });
}

void program::read_all() noexcept {
  for (std::uint8_t n = 0; n < files; ++n)
    while (files_[n].events.first() != nullptr) {
      script from{&n, 1};
      read_event(from);
    }
}

void program::finish(bool counts) noexcept {
  machine& rdma_cm = *process_.rdma_cm;
  for (std::size_t n = 0; n < files; ++n) close(n);
  process_.run();
  must(rdma_cm.deadline() == node_service::time::max(), "a timer is left");
  must(process_.net->live.empty(), "a conversation is left");
  for (const open_file& one : files_) {
    std::uint64_t count = 0;
    must(::read(one.counter.get(), &count, sizeof count) < 0, "a file is readable at the end");
  }
  if (!counts) return;
  // All numbers are free again.
  const auto numbers = static_cast<std::uint32_t>(known_.size());
  rdma_ucm_create_id body{};
  body.response = number_of(answer_.data());
  body.ps = RDMA_PS_TCP;
  for (std::uint32_t n = 0; n < numbers; ++n) {
    const int error = serve_bytes(0, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof body,
                                  sizeof(rdma_ucm_create_id_resp));
    must(error == 0 && answer<rdma_ucm_create_id_resp>().id == n, "an identifier is left");
  }
  process_.rdma_cm->close(files_[0].events);
}

}  // namespace softverbs::fuzz
