#include "subject.hpp"

#include "../perf/text.hpp"
#include "base/environment_variable.hpp"
#include "dcb.hpp"
#include "io/io_backend.hpp"
#include "runtime/environment.hpp"

#include <cordma/runtime/runtime_group.hpp>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace doctor {
namespace {

using cordma::verbs::context;

std::uint64_t limit_of(rlim_t limit) noexcept {
  return limit == RLIM_INFINITY ? process_facts::unlimited : std::uint64_t{limit};
}

bool may_lock_all() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
  return (data[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

/// Makes a ring as an executor does, and drops it.
std::optional<cordma::failure> why_no_ring() {
  try {
    cordma::executor_options options;
    options.backend = cordma::io_backend::io_uring;
    cordma::make_reactor(options)->enable();
    return std::nullopt;
  } catch (const cordma::error& e) {
    return e.failure();
  }
}

device_facts facts_of(const context& ctx, const machine& files) {
  device_facts facts;
  facts.info = ctx.info();
  facts.limits = ctx.limits();
  facts.is_in_kernel = files.has(facts.folder());
  for (unsigned n = 1; n <= facts.limits.port_count; ++n) {
    const auto number = std::uint8_t(n);
    facts.ports.push_back({.info = ctx.query_port(number), .gids = ctx.gid_table(number)});
  }
  return facts;
}

}  // namespace

const port_facts* device_facts::port() const noexcept {
  const auto found = std::ranges::find_if(ports, [this](const port_facts& one) {
    return options.port != 0 ? one.info.number == options.port : one.info.is_active();
  });
  return found == ports.end() ? nullptr : &*found;
}

std::optional<cordma::verbs::gid_entry> device_facts::gid() const {
  const port_facts* const used = port();
  if (used == nullptr) return std::nullopt;
  try {
    return cordma::verbs::choose_gid(used->gids, {.index = options.gid_index});
  } catch (const cordma::error&) {
    return std::nullopt;
  }
}

std::string subject::netdev() const {
  const auto gid = device ? device->gid() : std::nullopt;
  if (!gid || gid->netdev_ifindex == 0) return {};
  for (const std::string& name : files.names("/sys/class/net")) {
    if (files.number("/sys/class/net/" + name + "/ifindex") == gid->netdev_ifindex) return name;
  }
  return {};
}

process_facts read_process() {
  process_facts facts;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    facts.memlock_bytes = limit_of(limit.rlim_cur);
    facts.memlock_bytes_hard = limit_of(limit.rlim_max);
  }
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors = limit_of(limit.rlim_cur);
  facts.may_lock_all = may_lock_all();
  facts.cpus = cordma::runtime_group::allowed_cpus();
  facts.ring_failure = why_no_ring();
  if (const char* const text = cordma::detail::variable_text("CORDMA_IO_BACKEND")) {
    facts.backend_variable = text;
  }
  return facts;
}

subject read_subject(const chosen_names& names, machine files) {
  subject s{.files = std::move(files), .process = read_process()};
  s.wanted_device = names.device;
  try {
    const context ctx = cordma::detail::open_device(names.device);
    s.device = facts_of(ctx, s.files);
    cordma::connection_options options;
    options.gid_index = names.gid_index;
    s.device->options = cordma::detail::with_environment(options, ctx);
    if (const std::string netdev = s.netdev(); s.device->is_in_kernel && !netdev.empty())
      s.device->pfc = read_pfc(netdev);
  } catch (const cordma::error& e) {
    s.device_failure = e.failure();
  }
  return s;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == process_facts::unlimited) return "unlimited";
  std::string out;
  const double kib = double(bytes) / 1024;
  if (kib < 1024) {
    perf::append(out, "%.0f KiB", kib);
  } else if (kib < 1024 * 1024) {
    perf::append(out, "%.1f MiB", kib / 1024);
  } else {
    perf::append(out, "%.1f GiB", kib / (1024 * 1024));
  }
  return out;
}

}  // namespace doctor
