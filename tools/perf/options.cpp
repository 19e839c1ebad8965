#include "options.hpp"

#include "collective_arguments.hpp"
#include "cpu_list.hpp"
#include "job_arguments.hpp"
#include "size.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace perf {
namespace {

void add_output_options(CLI::App& to, options& o) {
  to.add_option("--json", o.json_file, "Write the results to this file, too");
  to.add_option("--csv", o.csv_file, "Write the results to this file, too, a row for each line");
  to.add_option("--histogram", o.histogram_file, "Write all latencies to this file, as CSV");
  to.add_option("--plot", o.plot_file,
                "Draw latency against load: depths 1 to --depth (64), or the rates of --rate");
  to.add_flag_callback(
      "--gbits", [&o] { o.client.unit = speed_unit::gigabits; }, "Print Gbit/s, not GB/s");
}

/// HOST or HOST:PORT; of a bare IPv6 address the colons are its own.
cordma::endpoint parse_server(const std::string& text, std::uint16_t port) {
  const auto colons = std::ranges::count(text, ':');
  if (colons == 1 || text.starts_with('[')) return cordma::endpoint::parse(text);
  return {text, port};
}

void read_side(options& o, const side_arguments& here) {
  o.client.device = here.read_device();
  o.client.pin = here.read_pin();
  if (!o.has_baseline) return;
  const auto refuse = [](const char* option) {
    throw std::invalid_argument{std::string{option} +
                                ": the raw loop of --baseline has none; leave it out"};
  };
  if (o.client.device.port != 0) refuse("--ib-port");
  if (o.client.device.gid_index) refuse("--gid-index");
  if (!o.client.pin.empty()) refuse("--pin");
}

/// With `--local` the client's threads have the first CPUs, and the server's those behind.
void check_pin(const options& o) {
  const std::size_t sides = o.role == role::local ? 2 : 1;
  static_cast<void>(cpus_for(o.client.pin, 0, sides * o.jobs.front().threads));
}

/// `--local` is another name of `local`, and `--collectives` of `collectives`.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> all(argv + 1, argv + argc);
  for (const std::string name : {"--local", "--collectives"}) {
    const auto flag = std::ranges::find(all, name);
    if (flag == all.end()) continue;
    all.erase(flag);
    all.insert(all.begin(), name.substr(2));
  }
  std::ranges::reverse(all);  // CLI11 wants the last argument first.
  return all;
}

}  // namespace

options parse_options(int argc, char** argv) {
  options o;
  job_arguments jobs;
  side_arguments here, there;
  std::string host, memory = "2G";
  std::uint16_t port = port_default;
  CLI::App app{"Measures cordma: throughput, latency and what an operation costs", "cordma-perf"};
  CLI::App* const server = app.add_subcommand("server", "Serve clients until it is killed");
  there.add_to(*server);
  server->add_option("--host", o.server.host, "Listen here; default 127.0.0.1, 0.0.0.0 is all");
  server->add_option("--port", port, "Default 7471; 0: any, it is printed");
  server->add_option("--data-port", o.server.data_port, "Of measured connections; default any");
  server->add_option("--memory", memory, "That a client's job may take here; default 2G");
  server->add_option("--threads", o.server.threads_max, "That a job may take; default: CPUs");
  CLI::App* const client = app.add_subcommand("client", "Measure with a server");
  client->add_option("HOST", host, "HOST or HOST:PORT")->required();
  client->add_option("--port", port, "The server's; default 7471");
  jobs.add_to(*client);
  here.add_to(*client);
  add_output_options(*client, o);
  CLI::App* const local = app.add_subcommand("local", "Both ends here; or --local");
  local->add_option("--memory", memory, "That a job may take on each side; default 2G");
  local->add_flag("--baseline", o.has_baseline, "By turns with a raw verbs loop, in one process");
  jobs.add_to(*local);
  here.add_to(*local);
  add_output_options(*local, o);
  collective_arguments collectives{app};
  try {
    app.parse(arguments_of(argc, argv));
  } catch (const CLI::CallForHelp&) {
    o.help = app.help("", CLI::AppFormatMode::All);
    return o;
  } catch (const CLI::ParseError& e) {
    throw std::invalid_argument{std::string{e.what()} + " (--help lists the options)"};
  }
  if (app.get_subcommands().size() != 1) {
    throw std::invalid_argument{
        "say server, client HOST, --local or --collectives (--help lists the options)"};
  }
  if (collectives.is_parsed()) {
    o.role = role::collectives;
    o.collectives = collectives.read();
    return o;
  }
  o.server.memory_bytes_max = parse_size("--memory", memory);
  o.server.port = port;
  if (server->parsed()) {
    o.role = role::server;
    o.server.device = there.read_device();
    o.server.pin = there.read_pin();
    return o;
  }
  o.role = client->parsed() ? role::client : role::local;
  read_side(o, here);
  o.jobs = jobs.read(o.has_baseline, !o.plot_file.empty());
  o.limits = jobs.read_limits(o.jobs, o.has_baseline);
  o.client.report_every = jobs.read_report_every();
  check_pin(o);
  if (client->parsed()) o.to = parse_server(host, port);
  return o;
}

}  // namespace perf
