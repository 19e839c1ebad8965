// cordma-perf: how fast cordma is on a machine, and what an operation costs. docs/cordma-perf.md
// says how to use it.

#include "client.hpp"
#include "collectives.hpp"
#include "compare.hpp"
#include "csv.hpp"
#include "local_server.hpp"
#include "options.hpp"
#include "plot.hpp"
#include "report.hpp"
#include "stop_signal.hpp"
#include "text.hpp"

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace {

using namespace perf;

void serve(const options& o) {
  cordma::runtime control{o.server.device.runtime_options()};
  server here{control, o.server};
  std::printf("device %s\nlistening on %s\n", std::string{control.device_name()}.c_str(),
              here.local_endpoint().to_string().c_str());
  if (here.is_open_to_strangers()) {
    std::printf("insecure: whoever reaches this address may run jobs here\n");
  }
  control.run(here.serve());
}

using on_result = std::function<void(const result&)>;

/// With the head of the table before the first: a run that fails at once says just why.
on_result begun(const options& o, const std::string& device, const on_result& each) {
  return [&o, device, each, has_begun = false](const result& r) mutable {
    if (!std::exchange(has_begun, true)) {
      std::printf("device %s, mode %s\n%s", device.c_str(), to_string(o.jobs.front().mode),
                  speeds_head(o.client.unit).c_str());
    }
    each(r);
  };
}

/// Gives the name of the device.
std::string measure(const options& o, const on_result& each) {
  if (o.role == role::local && o.has_baseline) {
    const std::string device{cordma::runtime{o.client.device.runtime_options()}.device_name()};
    compare_with_raw({.name = device}, o.jobs, begun(o, device, each));
    return device;
  }
  std::optional<local_server> beside;
  cordma::endpoint to = o.to;
  if (o.role == role::local) {
    server_options there = o.server;
    there.device = o.client.device;
    there.pin = o.client.pin;
    there.pin_first = o.jobs.front().threads;
    there.port = 0;
    there.threads_max = job::threads_max;
    beside.emplace(std::move(there));
    to = {"127.0.0.1", beside->port()};
  }
  client_options here = o.client;
  if (o.jobs.front().is_endless) here.is_stopped = &stop_by_signal();
  cordma::runtime control{here.device.runtime_options()};
  const std::string device{control.device_name()};
  control.run(run_with_server(control, here, to, o.jobs, begun(o, device, each)));
  return device;
}

void report(const options& o, const std::string& device, const std::vector<result>& results) {
  std::printf("%s", other_tables(results).c_str());
  const run_facts facts = read_facts(device, o.role == role::local ? "local" : o.to.host);
  if (!o.json_file.empty()) write_file(o.json_file, json(facts, results));
  if (!o.csv_file.empty()) write_file(o.csv_file, csv(facts, results));
  if (!o.histogram_file.empty()) write_file(o.histogram_file, histogram_csv(results));
  if (o.plot_file.empty()) return;
  const std::vector<plot_line> lines = lines_of(results);
  std::string title = "cordma-perf on " + device + ", " + to_string(results.front().what.mode);
  if (labels_points(lines))
    title += o.jobs.front().rate != 0 ? "; beside the points: rate" : "; beside the points: depth";
  write_file(o.plot_file, draw_svg(title, lines));
}

constexpr int exit_beyond_limit = 3;

/// Prints a line for each limit that a result does not keep.
bool keeps_limits(const options& o, const std::vector<result>& results) {
  bool are_kept = true;
  for (const result& r : results) {
    for (const limit& bound : o.limits) {
      const std::optional<std::string> why = broken(bound, r);
      if (!why) continue;
      std::fprintf(stderr, "cordma-perf: %s\n", why->c_str());
      are_kept = false;
    }
  }
  return are_kept;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  const options o = parse_options(argc, argv);
  if (o.role == role::help) {
    std::printf("%s", o.help.c_str());
  } else if (o.role == role::server) {
    serve(o);
  } else if (o.role == role::collectives) {
    return run_collectives(o.collectives);
  } else {
    for (const std::string* const file :
         {&o.json_file, &o.csv_file, &o.histogram_file, &o.plot_file})
      check_writable(*file);
    std::vector<result> results;
    const std::string device = measure(o, [&o, &results](const result& r) {
      std::printf("%s", speeds_row(r, o.client.unit).c_str());
      results.push_back(r);
    });
    report(o, device, results);
    return keeps_limits(o, results) ? 0 : exit_beyond_limit;
  }
} catch (const std::invalid_argument& e) {
  std::fprintf(stderr, "cordma-perf: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cordma-perf: %s\n", e.what());
  return 1;
}
