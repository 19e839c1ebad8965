// cordma-doctor: whether a machine is ready for RDMA with cordma. docs/cordma-doctor.md says how to
// use it.

#include "checks.hpp"
#include "options.hpp"
#include "peer.hpp"
#include "printers.hpp"
#include "server.hpp"
#include "tries.hpp"

#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace {

using namespace doctor;

std::string device_name(const subject& s) { return s.device ? s.device->info.name : std::string{}; }

/// One line about this side's device, for a client.
std::string describe(const subject& s) {
  report r;
  check_devices(s, r);
  const finding* const port = r.find("port");
  return "the peer's device " + device_name(s) + (port == nullptr ? "" : ", " + port->value) +
         "; GID: " + used_gid_text(s);
}

void serve(const options& o) {
  const subject s = read_subject(o.names);
  if (!s.device) throw cordma::error{*s.device_failure};
  cordma::runtime rt{options_for(s)};
  server here{rt, o.local, describe(s)};
  std::printf("device %s\nlistening on %s\n", device_name(s).c_str(),
              here.local_endpoint().to_string().c_str());
  if (here.is_open_to_strangers()) {
    std::printf("insecure: whoever reaches this address may try operations here\n");
  }
  rt.run(here.serve());
}

void try_all(const options& o, const subject& s, report& r) {
  const std::unique_ptr<cordma::runtime> rt = try_runtime(s, r);
  if (rt == nullptr) return;
  try_registration(*rt, s, r);
  try_operations(*rt, r);
  try_datagrams(*rt, s, r);
  try_uc(*rt, r);
  try_xrc(*rt, r);
  try_windows(*rt, s, r);
  try_reactors(s, r);
  if (o.role == role::peer) try_peer(*rt, o.peer, r);
}

/// Returns the exit status.
int examine(const options& o) {
  report r{[&o](const finding& f) {
    if (!o.is_json) std::printf("%s", text(f, o.is_verbose).c_str());
  }};
  const subject s = read_subject(o.names);
  check_all(s, r);
  if (s.device && !o.only_reads) try_all(o, s, r);
  const std::string peer = o.role == role::peer ? o.peer.to_string() : std::string{};
  std::printf("%s", o.is_json ? json(r, device_name(s), peer).c_str() : summary(r).c_str());
  return r.worst() == severity::error ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
  const options o = parse_options(argc, argv);
  if (o.role == role::help) {
    std::printf("%s", o.help.c_str());
    return 0;
  }
  if (o.role == role::serve) {
    serve(o);
    return 0;
  }
  return examine(o);
} catch (const std::invalid_argument& e) {
  std::fprintf(stderr, "cordma-doctor: %s\n", e.what());
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cordma-doctor: %s\n", e.what());
  return 1;
}
