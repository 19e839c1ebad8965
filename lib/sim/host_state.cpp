#include "host_state.hpp"

#include "world_state.hpp"

#include <netinet/in.h>

#include <array>
#include <cstring>
#include <utility>

namespace cordma::sim::detail {
namespace {

/// Steps of a device that are listed at once.
constexpr unsigned steps_max = 64;
/// Time between two polls of a loop that keeps the thread.
constexpr std::chrono::microseconds pause_time{1};

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
    : before_{softverbs_enter_host(host.device_)}, random_{host.bytes_} {}

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
  return socket_address::resolve(host, port);
}

std::vector<socket_address> answers::own_addresses() { return {host_.address(0)}; }

socket_address answers::address_toward(const socket_address& /*to*/) { return host_.address(0); }

std::string answers::boot_id() { return host_.name(); }

void answers::pause() noexcept { host_.pass_time(); }

time_point host_state::now() const noexcept { return world_.now(); }

void host_state::add_device() {
  const ibv_gid own = gid();
  const softverbs_world calls = world_.network().calls();
  device_ = softverbs_add_host(&calls, &own, 1, std::uint16_t(number_),
                               std::uint32_t(world_.names().next()));
  if (device_ == nullptr) throw finding{"a host cannot be added: no memory"};
}

void host_state::start(callback<task<>(runtime&)> program,
                       const callback<runtime_options()>& options) {
  if (is_running()) throw finding{"host " + name_ + " runs a program already"};
  const host_scope here{*this};
  process_ =
      std::make_unique<process>(*this, options ? options() : runtime_options{}, std::move(program));
  ++incarnation_;
  timer_at_ = device_timer_at_ = time_point::max();
  is_step_due_ = is_device_due_ = false;
  schedule_step(now());
}

void host_state::schedule_step(time_point at) noexcept {
  is_step_due_ = true;
  world_.schedule(
      {.at = at, .kind = event_kind::program_step, .host = this, .incarnation = incarnation_});
}

void host_state::step_program() {
  is_step_due_ = false;
  if (timer_at_ <= now()) timer_at_ = time_point::max();
  if (process_ == nullptr) return;
  executor::step_outcome outcome;
  {
    const host_scope here{*this};
    outcome = process_->run.step();
    if (outcome.state == executor::run_state::ended) {
      std::exception_ptr why;
      try {
        process_->run.take();
      } catch (...) {
        why = std::current_exception();
      }
      end_process();
      if (why != nullptr) world_.fail(*this, why);
      return;
    }
  }
  spins_ = outcome.state == executor::run_state::spinning;
  if (outcome.state == executor::run_state::working) {
    schedule_step(now() + world_.step_time());
    return;
  }
  const time_point next = std::min(outcome.deadline, process_->reactor->alarm());
  if (next < timer_at_) {
    timer_at_ = next;
    world_.schedule({.at = std::max(next, now() + duration{1}),
                     .kind = event_kind::program_step,
                     .host = this,
                     .incarnation = incarnation_});
  }
  take_news();
}

void host_state::take_news() noexcept {
  if (process_ == nullptr || is_step_due_) return;
  if (spins_ || process_->reactor->has_news()) schedule_step(now() + world_.step_time());
}

void host_state::wake() noexcept {
  if (process_ != nullptr && !is_step_due_) schedule_step(now() + world_.step_time());
}

void host_state::device_has_work() noexcept {
  if (std::exchange(is_device_due_, true)) return;
  world_.schedule({.at = now() + world_.step_time(),
                   .kind = event_kind::device_step,
                   .host = this,
                   .incarnation = incarnation_});
}

void host_state::step_device() {
  is_device_due_ = false;
  if (device_timer_at_ <= now()) device_timer_at_ = time_point::max();
  std::array<softverbs_step, steps_max> steps;
  const unsigned count = softverbs_list_steps(device_, steps.data(), steps_max);
  if (count > 0) {
    ++activity_;
    softverbs_do_step(device_, &steps[world_.schedule_choice(count)]);
    device_has_work();
  } else if (const std::int64_t next = softverbs_next_timer(device_); next != INT64_MAX) {
    const time_point at{duration{next}};
    if (at < device_timer_at_) {
      device_timer_at_ = at;
      world_.schedule(
          {.at = at, .kind = event_kind::device_step, .host = this, .incarnation = incarnation_});
    }
  }
  take_news();
}

void host_state::pass_time() noexcept {
  world_.pass(pause_time);
  softverbs_step step;
  if (softverbs_list_steps(device_, &step, 1) != 0) softverbs_do_step(device_, &step);
}

void host_state::end_process() noexcept {
  const host_scope here{*this};
  process_.reset();
  sockets_.close_all();
}

void host_state::kill() {
  if (process_ == nullptr) return;
  softverbs_kill_host(device_);
  end_process();
  ++incarnation_;
  // The next process has an adapter of its own.
  static_cast<void>(softverbs_remove_host(device_));
  add_device();
}

}  // namespace cordma::sim::detail
