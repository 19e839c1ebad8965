#include "host_state.hpp"

#include "allocations.hpp"
#include "device_calls.hpp"
#include "world_state.hpp"

#include <cordma/base/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <utility>

namespace cordma::sim::detail {
namespace {

/// Steps of a device that are listed at once.
constexpr unsigned steps_max = 64;
/// One in so many of the calls that post, poll or arm is interrupted by the device.
constexpr std::size_t interleave_every = 16;
/// Time between two polls of a loop that keeps the thread.
constexpr std::chrono::microseconds pause_time{1};
/// Memory that a host's allocators may register, if its program names no limit.
constexpr std::size_t memory_bytes = std::size_t{1} << 30;

constinit cordma::detail::spare_memory memory_of_hosts;

}  // namespace

struct host_state::process {
  process(host_state& host, runtime_options&& options, callback<task<>(runtime&)> of)
      : program{std::move(of)},
        rt{with_world(host, std::move(options))},
        run{rt.executor(), program(rt)} {}

  runtime_options with_world(host_state& host, runtime_options&& options) {
    auto made = std::make_unique<sim_reactor>(host);
    reactor = made.get();
    options.device = "soft0";
    if (options.memory.limit_bytes == 0) options.memory.limit_bytes = memory_bytes;
    options.executor.clock = &host.world_.clock();
    options.executor.reactor = std::move(made);
    return std::move(options);
  }

  sim_reactor* reactor = nullptr;
  callback<task<>(runtime&)> program;
  runtime rt;
  executor::stepped_run<task<>> run;
};

void seeded_bytes::fill(std::span<std::byte> out) {
  for (std::byte& one : out) one = std::byte(numbers_.next() >> 32);
}

host_scope::host_scope(host_state& host) noexcept
    : before_{softverbs_enter_host(host.device_)},
      random_{host.bytes_},
      memory_{memory_of_hosts},
      trap_{host} {}

host_state::host_state(world_state& w, std::string name, unsigned number)
    : world_{w}, bytes_{w.names().next()}, name_{std::move(name)}, number_{number} {
  add_device();
}

host_state::~host_state() {
  end_process();
  static_cast<void>(softverbs_remove_host(device_));
}

ibv_gid host_state::gid() const noexcept {
  ibv_gid gid{};
  gid.raw[0] = 0xfd;
  gid.raw[14] = std::uint8_t(number_ >> 8);
  gid.raw[15] = std::uint8_t(number_);
  return gid;
}

socket_address host_state::address(std::uint16_t port) const noexcept {
  sockaddr_in6 address{};
  const ibv_gid own = gid();
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  std::memcpy(&address.sin6_addr, &own, sizeof own);
  return {reinterpret_cast<const sockaddr*>(&address), sizeof address};
}

cordma::detail::socket_calls& answers::sockets() noexcept { return host_.sockets(); }

std::vector<socket_address> answers::resolve(const std::string& host, std::uint16_t port) {
  if (const host_state* const known = host_.world().host_named(host)) return {known->address(port)};
  sockaddr_in in{};
  sockaddr_in6 in6{};
  in.sin_family = AF_INET;
  in6.sin6_family = AF_INET6;
  in.sin_port = in6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &in6.sin6_addr) == 1)
    return {{reinterpret_cast<const sockaddr*>(&in6), sizeof in6}};
  if (::inet_pton(AF_INET, host.c_str(), &in.sin_addr) == 1)
    return {{reinterpret_cast<const sockaddr*>(&in), sizeof in}};
  throw error{{.code = errc::unknown_host, .call = "resolve", .detail = std::string_view{host}}};
}

std::vector<socket_address> answers::own_addresses() { return {host_.address(0)}; }

socket_address answers::address_toward(const socket_address& /*to*/) { return host_.address(0); }

std::string answers::boot_id() { return host_.name(); }

void answers::pause() noexcept { host_.pass_time(); }

time_point host_state::now() const noexcept { return world_.now(); }

void host_state::add_device() {
  const ibv_gid own = gid();
  const softverbs_world calls = device_calls(*this);
  device_ = softverbs_add_host(&calls, &own, 1, std::uint16_t(number_),
                               std::uint32_t(world_.names().next()));
  has_device_failed_ = false;
  if (device_ == nullptr) throw finding{"a host cannot be added: no memory"};
}

void host_state::start(callback<task<>(runtime&)> program,
                       const callback<runtime_options()>& options) {
  if (is_running()) throw finding{"host " + name_ + " runs a program already"};
  const host_scope here{*this};
  try {
    process_ = std::make_unique<process>(*this, options ? options() : runtime_options{},
                                         std::move(program));
  } catch (...) {
    end_process();
    throw;
  }
  ++incarnation_;
  has_power_ = true;
  timer_at_ = device_timer_at_ = time_point::max();
  allocations_left_ = 0;
  is_step_due_ = is_device_due_ = is_frozen_ = missed_step_ = has_second_address_ = false;
  schedule_step(now());
}

/// Returns how long the next step of the program takes to begin.
duration host_state::program_time() { return world_.step_time(2 * number_) + world_.pause(); }

void host_state::schedule_step(time_point at) noexcept {
  is_step_due_ = true;
  step_at_ = at;
  world_.schedule(
      {.at = at, .host = this, .incarnation = incarnation_, .kind = event_kind::program_step});
}

void host_state::thaw() noexcept {
  is_frozen_ = false;
  if (std::exchange(missed_step_, false)) schedule_step(now());
}

void host_state::fail_device() {
  if (process_ == nullptr) return;
  world_.note("its device fails", *this);
  has_device_failed_ = true;
  static_cast<void>(softverbs_fail_device(device_));
}

void host_state::set_port(bool is_up) {
  world_.note(either(is_up, "its port comes up", "its port goes down"), *this);
  static_cast<void>(softverbs_set_port(device_, is_up ? 1 : 0));
}

/// Changes the port's state, or its addresses, by chance.
void host_state::happen_to_port() {
  if (const duration down = world_.port_down(); down > duration{}) {
    set_port(false);
    world_.call_at(now() + down, [this, device = device_] {
      if (device == device_) set_port(true);
    });
  }
  if (!world_.changes_address()) return;
  has_second_address_ = !has_second_address_;
  world_.note("its addresses change", *this);
  std::array<ibv_gid, 2> gids{gid(), gid()};
  gids[1].raw[1] = 1;
  static_cast<void>(softverbs_change_gids(device_, gids.data(), has_second_address_ ? 2 : 1));
}

void host_state::step_program() {
  if (is_frozen_) {
    is_step_due_ = missed_step_ = true;
    return;
  }
  // A timer makes no step of a program that goes on at a time of its own.
  if ((is_step_due_ ? step_at_ : timer_at_) > now()) return;
  is_step_due_ = false;
  if (timer_at_ <= now()) timer_at_ = time_point::max();
  if (process_ == nullptr) return;
  happen_to_port();
  if (allocations_left_ == 0) allocations_left_ = world_.allocations_until_one_fails();
  executor::step_outcome outcome;
  {
    const host_scope here{*this};
    {
      const allocation_scope scarce{*this, allocations_left_};
      outcome = process_->run.step();
    }
    if (outcome.state == executor::run_state::ended) {
      std::exception_ptr why;
      try {
        process_->run.take();
      } catch (...) {
        why = std::current_exception();
      }
      if (has_device_failed_) softverbs_kill_host(device_);
      end_process();
      if (has_device_failed_) replace_device();
      if (why != nullptr) world_.fail(*this, why);
      return;
    }
  }
  spins_ = outcome.state == executor::run_state::spinning;
  if (outcome.state == executor::run_state::working) {
    schedule_step(now() + program_time());
    return;
  }
  const time_point next = std::min(outcome.deadline, process_->reactor->alarm());
  if (next < timer_at_) {
    timer_at_ = next;
    world_.schedule({.at = std::max(next, now() + duration{1}),
                     .host = this,
                     .incarnation = incarnation_,
                     .kind = event_kind::program_step});
  }
  take_news();
}

void host_state::take_news() noexcept {
  if (process_ == nullptr || is_step_due_) return;
  if (spins_ || process_->reactor->has_news()) schedule_step(now() + program_time());
}

void host_state::wake() noexcept {
  if (process_ != nullptr && !is_step_due_) schedule_step(now() + program_time());
}

void host_state::device_has_work() noexcept {
  if (std::exchange(is_device_due_, true)) return;
  world_.schedule({.at = now() + world_.step_time(2 * number_ + 1),
                   .host = this,
                   .incarnation = incarnation_,
                   .kind = event_kind::device_step});
}

void host_state::step_device() {
  is_device_due_ = false;
  if (device_timer_at_ <= now()) device_timer_at_ = time_point::max();
  std::array<softverbs_step, steps_max> steps;
  const unsigned count = softverbs_list_steps(device_, steps.data(), steps_max);
  if (count > 0) softverbs_do_step(device_, &steps[world_.schedule_choice(count)]);
  if (count > 1 || softverbs_list_steps(device_, steps.data(), 1) != 0) {
    device_has_work();
  } else if (const std::int64_t next = softverbs_next_timer(device_); next != INT64_MAX) {
    const time_point at{duration{next}};
    if (at < device_timer_at_) {
      device_timer_at_ = at;
      world_.schedule(
          {.at = at, .host = this, .incarnation = incarnation_, .kind = event_kind::device_step});
    }
  }
  if (spins_) take_news();
}

/// Lets frames arrive and the device work in the middle of the program's step, by chance.
void host_state::interleave() {
  if (world_.schedule_choice(interleave_every) != 1) return;
  static_cast<void>(world_.network().hurry(*this));
  softverbs_step step;
  if (softverbs_list_steps(device_, &step, 1) != 0) softverbs_do_step(device_, &step);
}

int host_state::on_verb(std::string_view verb, ibv_context* on) {
  if (on != nullptr) world_.requests().watch(*this, on);
  if (is_leaving_) return 0;
  verb.remove_prefix(std::string_view{"ibv_"}.size());
  if (verb == "modify_qp") world_.requests().forget_resets(*this);
  if (verb.starts_with("po") || verb.starts_with("req")) {
    interleave();
    return 0;
  }
  const bool makes = verb.starts_with("create") || verb.starts_with("alloc") ||
                     verb.starts_with("reg") || verb.starts_with("open");
  if (makes && has_device_failed_) return EIO;
  if (!makes || !world_.refuses_verb()) return 0;
  world_.note("fault: a verb is refused", *this);
  return ENOMEM;
}

void host_state::pass_time() noexcept {
  world_.pass(pause_time);
  softverbs_step step;
  if (softverbs_list_steps(device_, &step, 1) != 0) softverbs_do_step(device_, &step);
}

/// Destroys the process. All that it had made must be gone then.
void host_state::end_process() noexcept {
  const host_scope here{*this};
  process_.reset();
  check_nothing_left();
  sockets_.close_all();
  world_.requests().forget(*this);
  world_.memory().forget(*this);
}

void host_state::check_nothing_left() {
  const softverbs_counts c = softverbs_count_objects(device_);
  const std::pair<const char*, std::size_t> counts[] = {
      {"contexts", c.contexts},     {"protection domains", c.pds},
      {"memory regions", c.mrs},    {"memory windows", c.mws},
      {"completion queues", c.cqs}, {"completion channels", c.channels},
      {"queue pairs", c.qps},       {"shared receive queues", c.srqs},
      {"address handles", c.ahs},   {"sockets", sockets_.count()}};
  std::string left;
  for (const auto& [what, count] : counts)
    if (count != 0)
      left += (left.empty() ? "" : ", ") + std::string{what} + ": " + std::to_string(count);
  if (!left.empty()) world_.find("the process of host " + name_ + " left " + left);
}

void host_state::leave() noexcept {
  is_leaving_ = true;
  kill();
}

void host_state::kill() {
  if (process_ == nullptr) return;
  world_.note("is killed", *this);
  softverbs_kill_host(device_);
  end_process();
  replace_device();
}

void host_state::lose_power() {
  has_power_ = false;
  if (process_ == nullptr) return;
  world_.note("loses its power", *this);
  softverbs_vanish_host(device_);
  sockets_.mute();
  end_process();
  replace_device();
}

/// The next process has an adapter of its own.
void host_state::replace_device() {
  ++incarnation_;
  world_.network().forget(*this);
  if (softverbs_remove_host(device_) != 0)
    world_.find("the process of host " + name_ + " left its device open");
  add_device();
}

}  // namespace cordma::sim::detail
