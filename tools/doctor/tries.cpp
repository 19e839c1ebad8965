#include "tries.hpp"

#include "agent/window_probe.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <string_view>
#include <variant>

namespace doctor {
namespace {

using cordma::runtime;
using cordma::task;

constexpr std::size_t tried_bytes = std::size_t{64} << 10;
constexpr std::chrono::seconds longer_than_any_attempt{60};

std::string mend_of(const cordma::failure& f) {
  const auto code = f.code;
  if (code == std::errc::not_enough_memory || code == std::errc::operation_not_permitted) {
    return "see memlock and cgroup: ulimit -l unlimited";
  }
  if (code == std::errc::permission_denied) return "see device.file";
  if (code == std::errc::too_many_files_open) return "ulimit -n 65536";
  if (code == cordma::errc::no_gid) return "see gid";
  return "see the findings above; the text names the call and the way out";
}

std::string pinned(const subject& s) {
  return s.files.field("/proc/self/status", "VmPin").value_or("unknown");
}

void try_dma_buf(runtime& rt, report& r) {
  const std::string why = "the memory of a GPU is registered by its dma-buf";
  constexpr int no_descriptor = -1;
  try {
    const cordma::verbs::memory_region region{rt.protection_domain(),
                                              no_descriptor,
                                              0,
                                              4096,
                                              nullptr,
                                              cordma::verbs::access::local_write};
    r.ok("try.dma_buf", "the device takes dma-bufs", why);
  } catch (const cordma::error& e) {
    if (e.code() == cordma::errc::not_supported) {
      r.note("try.dma_buf", "the device registers no dma-bufs", why);
    } else {
      // The descriptor is none, so a device that takes dma-bufs refuses only that.
      r.ok("try.dma_buf", "the device takes dma-bufs", why);
    }
  }
}

task<> accept_and_answer(runtime& rt, cordma::listener& listener, operation op) {
  cordma::connection conn = co_await listener.accept();
  co_await answer(rt, std::move(conn), op);
  co_await cordma::sleep_for(longer_than_any_attempt);  // The active side ends first.
}

task<outcome> connect_and_act(runtime& rt, cordma::endpoint to, operation op) {
  const cordma::connection_changes changes = changes_for(op);
  cordma::connection conn = co_await rt.connect(to, changes);
  co_return co_await outcome_of_act(rt, std::move(conn), op);
}

outcome try_operation(runtime& rt, operation op) {
  try {
    cordma::listener listener = rt.listen({}, {}, changes_for(op));
    auto ended = rt.run(cordma::when_any(connect_and_act(rt, listener.local_endpoint(), op),
                                         accept_and_answer(rt, listener, op)));
    return std::get<0>(std::move(ended));
  } catch (const std::exception& e) {
    return {.kind = outcome_kind::failure, .text = e.what()};
  }
}

}  // namespace

cordma::runtime_options options_for(const subject& s) {
  cordma::runtime_options options;
  if (s.device) {
    options.device = s.device->info.name;
    options.port = s.device->options.port;
    options.gid_index = s.device->options.gid_index;
  }
  return options;
}

std::unique_ptr<runtime> try_runtime(const subject& s, report& r) {
  const std::string why = "each program makes one for each thread";
  try {
    auto made = std::make_unique<runtime>(options_for(s));
    r.ok("try.runtime",
         std::string{made->device_name()} + ", waits with " + made->executor().reactor().name(),
         why);
    return made;
  } catch (const cordma::error& e) {
    r.error("try.runtime", e.what(), why, mend_of(e.failure()));
    return nullptr;
  }
}

void try_registration(runtime& rt, const subject& s, report& r) {
  const std::string why = "whatever the device reads or writes is registered first";
  try {
    const std::string before = pinned(s);
    const cordma::local_mr memory = rt.memory().allocate_zeroed(tried_bytes);
    std::string value = bytes_text(memory.size_bytes()) + " in a chunk of " +
                        bytes_text(rt.memory().counters().registered_bytes);
    if (s.kernel_device() != nullptr) value += "; pinned (VmPin): " + before + ", now " + pinned(s);
    r.ok("try.register", value, why);
  } catch (const cordma::error& e) {
    r.error("try.register", e.what(), why, mend_of(e.failure()));
  }
  try_dma_buf(rt, r);
}

void try_operations(runtime& rt, report& r) {
  for (const operation op : transfers) {
    const std::string check = std::string{"try."} + to_string(op);
    const std::string why = "a loopback on this device: no network is involved";
    add_outcome(r, check, try_operation(rt, op), why,
                {severity::error, "see gid, mtu, memlock and cgroup; sudo dmesg may tell more"});
  }
}

outcome outcome_in_time(runtime& rt, task<std::string> attempt,
                        std::chrono::milliseconds deadline) {
  outcome o;
  try {
    o.text = rt.run(cordma::with_timeout(std::move(attempt), deadline));
    o.kind = outcome_kind::success;
  } catch (const not_there& e) {
    o.kind = outcome_kind::not_there;
    o.text = e.what();
  } catch (const cordma::error& e) {
    const bool is_lost =
        e.code() == cordma::errc::timed_out && e.failure().call == std::string_view{"with_timeout"};
    if (e.code() == cordma::errc::not_supported) o.kind = outcome_kind::not_there;
    o.text = is_lost ? "it did not end within " + std::to_string(deadline.count()) +
                           " ms: what was sent did not arrive"
                     : e.what();
  } catch (const std::exception& e) {
    o.text = e.what();
  }
  return o;
}

void add_outcome(report& r, const std::string& check, const outcome& o, const std::string& why,
                 const if_it_fails& otherwise) {
  switch (o.kind) {
    case outcome_kind::success: return r.ok(check, o.text, why);
    case outcome_kind::not_there: return r.note(check, o.text, why);
    case outcome_kind::failure:
      return r.add({check, otherwise.severity, o.text, why, otherwise.mend});
  }
}

void try_windows(runtime& rt, const subject& s, report& r) {
  const std::string why =
      "memory is lent through windows; where the range is not checked, each loan is registered by "
      "itself (isolation exact_registered)";
  const auto gid = s.device ? s.device->gid() : std::nullopt;
  if (!gid) return;
  if (!rt.context().limits().memory_window_type_2) {
    r.note("try.windows", "the device has no memory windows of type 2", why,
           "to lend memory nevertheless: lending_policy::isolation_min = isolation::shared_key");
    return;
  }
  try {
    if (cordma::checks_window_ranges(rt.executor(), rt.context(), rt.protection_domain(),
                                     s.device->port()->info, *gid)) {
      r.ok("try.windows", "the device checks the range of memory windows", why);
    } else {
      r.note("try.windows", "the device does not check the range of memory windows", why);
    }
  } catch (const cordma::error& e) {
    r.warning("try.windows", e.what(), why, mend_of(e.failure()));
  }
}

}  // namespace doctor
