// cordma-perf: how fast cordma is on a machine, and what an operation costs. docs/cordma-perf.md
// says how to use it.

#include "client.hpp"
#include "collectives.hpp"
#include "compare.hpp"
#include "local_server.hpp"
#include "options.hpp"
#include "plot.hpp"
#include "report.hpp"
#include "text.hpp"

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace {

using namespace perf;

void serve(const options& o) {
  cordma::runtime control{{.device = o.server.device}};
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
                  speeds_head().c_str());
    }
    each(r);
  };
}

/// Gives the name of the device.
std::string measure(const options& o, const on_result& each) {
  if (o.role == role::local && o.has_baseline) {
    const std::string device{cordma::runtime{{.device = o.device}}.device_name()};
    compare_with_raw(device, o.jobs, begun(o, device, each));
    return device;
  }
  std::optional<local_server> beside;
  cordma::endpoint to = o.to;
  if (o.role == role::local) {
    server_options there = o.server;
    there.device = o.device;
    there.port = 0;
    there.threads_max = job::threads_max;
    beside.emplace(std::move(there));
    to = {"127.0.0.1", beside->port()};
  }
  cordma::runtime control{{.device = o.device}};
  const std::string device{control.device_name()};
  control.run(run_with_server(control, o.device, to, o.jobs, begun(o, device, each)));
  return device;
}

void report(const options& o, const std::string& device, const std::vector<result>& results) {
  std::printf("%s", other_tables(results).c_str());
  if (!o.json_file.empty()) write_file(o.json_file, json(device, results));
  if (o.plot_file.empty()) return;
  const std::vector<plot_line> lines = lines_of(results);
  std::string title = "cordma-perf on " + device + ", " + to_string(results.front().what.mode);
  if (labels_points(lines)) title += "; beside the points: depth";
  write_file(o.plot_file, draw_svg(title, lines));
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
    check_writable(o.json_file);
    check_writable(o.plot_file);
    std::vector<result> results;
    const std::string device = measure(o, [&results](const result& r) {
      std::printf("%s", speeds_row(r).c_str());
      results.push_back(r);
    });
    report(o, device, results);
  }
} catch (const std::invalid_argument& e) {
  std::fprintf(stderr, "cordma-perf: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cordma-perf: %s\n", e.what());
  return 1;
}
