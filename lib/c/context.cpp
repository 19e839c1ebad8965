#include "context.hpp"

#include "objects.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace cordma::c {
namespace {

constexpr unsigned receives_max = 4096;
constexpr std::uint32_t receive_bytes_max = std::uint32_t{1} << 30;
/// Requests of one connection that the device may have at once.
constexpr std::uint32_t sends_max = 128;

completion_mode mode_of(int progress) {
  switch (progress) {
    case CORDMA_EVENT: return completion_mode::event;
    case CORDMA_BUSY: return completion_mode::busy;
    case CORDMA_ADAPTIVE: return completion_mode::adaptive;
    default: throw misuse{CORDMA_BAD_ARGUMENT, "options.progress is no cordma_progress"};
  }
}

event_log log_of(const cordma_options& options) {
  const int level = options.log_level == 0 ? int{CORDMA_LOG_INFO} : options.log_level;
  const auto hook = [log = options.log, user = options.log_user](const event_log::record& record) {
    std::array<char, 1024> line;
    line[record.write_to(std::span{line}.first(line.size() - 1))] = '\0';
    log(int(record.level) + CORDMA_LOG_ERROR, line.data(), user);
  };
  return {.hook = hook, .least_urgent = event_log::level(level - CORDMA_LOG_ERROR)};
}

/// Ends a connection, within the time that is left.
task<> say_goodbye(connection link, std::int64_t timeout_us) {
  static_cast<void>(co_await as_result(with_timeout(link.close(), span_of(timeout_us))));
}

}  // namespace

context_options checked(const cordma_options* options) {
  const auto refuse_unless = [](bool fits, const char* text) {
    if (!fits) throw misuse{CORDMA_BAD_ARGUMENT, text};
  };
  context_options made;
  if (options == nullptr) return made;
  refuse_unless(options->struct_bytes == sizeof *options,
                "options.struct_bytes is not that of this library: begin with CORDMA_OPTIONS, and "
                "build with its cordma.h");
  refuse_unless(options->loop >= CORDMA_CALLS && options->loop <= CORDMA_DESCRIPTOR,
                "options.loop is no cordma_loop");
  refuse_unless(options->receives <= receives_max, "options.receives is above 4096");
  refuse_unless(options->receive_bytes <= receive_bytes_max,
                "options.receive_bytes is above 1 GiB");
  refuse_unless(options->loop == CORDMA_THREAD || options->pins == 0,
                "options.pins needs options.loop = CORDMA_THREAD");
  refuse_unless(options->loop != CORDMA_DESCRIPTOR || options->progress != CORDMA_BUSY,
                "options.progress = CORDMA_BUSY never sleeps: no descriptor says when it has work");
  refuse_unless(options->log_level >= 0 && options->log_level <= CORDMA_LOG_DEBUG,
                "options.log_level is no cordma_log_level");
  if (options->log != nullptr) made.of_runtime.log = log_of(*options);
  if (options->device != nullptr) {
    const std::string_view name = options->device;
    refuse_unless(name.size() < 64, "options.device is longer than a device's name can be");
    made.of_runtime.device = name;
  }
  made.of_runtime.cq.mode = mode_of(options->progress);
  made.of_runtime.connections.agent.lending.bytes_max = std::size_t(options->lend_bytes_max);
  made.loop = options->loop;
  if (options->pins != 0) made.cpu = options->cpu;
  if (options->receives != 0) made.receives = options->receives;
  if (options->receive_bytes != 0) made.receive_bytes = options->receive_bytes;
  made.is_insecure = options->insecure != 0;
  return made;
}

namespace {

std::unique_ptr<loop_reactor> loop_for(const context_options& options) {
  return options.loop == CORDMA_DESCRIPTOR ? std::make_unique<loop_reactor>() : nullptr;
}

runtime_options with(context_options&& options, std::unique_ptr<loop_reactor> loop) {
  connection_options& each = options.of_runtime.connections;
  each.capabilities.recv_wr_max = options.receives;
  each.preposted = options.receives;
  each.preposted_bytes = options.receive_bytes;
  each.capabilities.send_wr_max = sends_max;
  each.insecure = options.is_insecure;
  each.private_data = said_to_peers(options.receive_bytes);
  options.of_runtime.executor.reactor = std::move(loop);
  return std::move(options.of_runtime);
}

}  // namespace

context::context(context_options&& options, std::shared_ptr<foreign_calls> by)
    : object{*this},
      made_loop_{loop_for(options)},
      calls{std::move(by)},
      loop{made_loop_.get()},
      rt{with(std::move(options), std::move(made_loop_))} {
  if (calls != nullptr) calls->open(rt.executor());
}

context::~context() = default;

void context::adopt(kind of, object& what) {
  if (is_shut_)
    throw misuse{CORDMA_CANCELLED, "cordma_release has begun: the context takes nothing new"};
  handles().add(of, what, calls);
  if (&what != this) objects_.push_back(what);
}

void context::abandon(object& what) noexcept {
  what.list_hook<object>::unlink();
  handles().remove(what.number);
}

task<> context::shut_down(std::int64_t timeout_us) {
  is_shut_ = true;
  scope goodbyes{rt.executor()};
  std::vector<ref<object>> closed;
  while (!objects_.empty()) {
    object& what = objects_.front();
    closed.emplace_back(what);
    abandon(what);
    if (auto* const one = dynamic_cast<connection_object*>(&what)) {
      goodbyes.spawn(say_goodbye(std::move(one->link), timeout_us));
    } else if (auto* const one_listener = dynamic_cast<listener_object*>(&what)) {
      one_listener->acceptor.reset();
    }
  }
  closed.clear();
  co_await goodbyes.join();
  tasks.request_stop();
  co_await tasks.join();
  // A stop only schedules, so that the list stays as it is meanwhile.
  intrusive_list<bounded_base> stopped;
  stopped.splice_back(waits);
  while (!stopped.empty()) {
    bounded_base& wait = stopped.pop_front();
    waits.push_back(wait);
    wait.request_stop();
  }
  while (!waits.empty() || posts.in_flight() > 0) co_await rt.executor().sleep_for(time_span{});
}

void context::serve() {
  const context_run here;
  rt.run([](context& self) -> task<> {
    co_await self.is_released_.wait();
    co_await self.shut_down(self.goodbye_us_);
  }(*this));
  calls->close();
}

}  // namespace cordma::c
