#include "checks.hpp"

#include <array>

namespace doctor {

void check_clock(const subject& s, report& r) {
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const auto source = s.files.text(folder + "current_clocksource");
  if (!source) return;
  const std::string why =
      "timers, leases and adaptive polling read the clock: from these sources without a system "
      "call";
  constexpr std::array fast{
      "tsc",      "arch_sys_counter",  "kvm-clock", "hyperv_clocksource_tsc_page",
      "timebase", "riscv_clocksource", "tod"};
  for (const char* one : fast) {
    if (*source == one) return r.ok("clock", *source, why);
  }
  const std::string available = s.files.text(folder + "available_clocksource").value_or("");
  const bool has_tsc = (' ' + available + ' ').find(" tsc ") != std::string::npos;
  r.warning("clock", *source + ": each reading is a system call",
            "timers, leases and adaptive polling read the clock often",
            has_tsc ? "echo tsc | sudo tee " + folder + "current_clocksource"
                    : "boot with tsc=reliable, if the processors' counters agree");
}

void check_huge_pages(const subject& s, report& r) {
  const std::string size = s.files.field("/proc/meminfo", "Hugepagesize").value_or("");
  if (size.empty()) return;
  const std::string free = s.files.field("/proc/meminfo", "HugePages_Free").value_or("0");
  const std::string modes =
      s.files.text("/sys/kernel/mm/transparent_hugepage/enabled").value_or("[never]");
  const std::size_t begin = modes.find('[');
  const std::size_t end = modes.find(']');
  const std::string mode = begin < end && end != std::string::npos
                               ? modes.substr(begin + 1, end - begin - 1)
                               : std::string{"unknown"};
  const std::string value = free + " free of " + size + "; transparent ones: " + mode;
  const std::string why =
      "a device translates large registered memory faster in huge pages "
      "(mr_allocator_options::huge_pages)";
  if (free != "0" || mode == "always" || mode == "madvise") {
    r.ok("huge_pages", value, why);
  } else {
    r.note("huge_pages", value, why,
           "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled, or sudo sysctl "
           "vm.nr_hugepages=512");
  }
}

void check_peer_memory(const subject& s, report& r) {
  constexpr std::array gpus{"nvidia", "amdgpu", "xe", "i915"};
  std::string gpu;
  for (const char* one : gpus) {
    if (s.files.has("/sys/module/" + std::string{one})) gpu = one;
  }
  const std::string why =
      "a device reaches a GPU's memory by dma-buf (ibv_reg_dmabuf_mr), or by a peer-memory module";
  constexpr std::array modules{"nvidia_peermem", "nv_peer_mem", "amdp2p"};
  for (const char* one : modules) {
    if (s.files.has("/sys/module/" + std::string{one})) return r.ok("peer_memory", one, why);
  }
  const std::string value = "no module of a GPU's peer memory";
  if (gpu == "nvidia") {
    r.note("peer_memory", value + ", and an NVIDIA GPU", why,
           "use dma-buf if try.dma_buf is ok, else: sudo modprobe nvidia_peermem");
  } else {
    r.ok("peer_memory", value + (gpu.empty() ? ", and no GPU" : "; " + gpu + " has dma-bufs"), why);
  }
}

void check_all(const subject& s, report& r) {
  constexpr std::array checks{
      &check_devices, &check_device_files, &check_modules,    &check_gid,        &check_mtu,
      &check_limits,  &check_cgroups,      &check_waiting,    &check_congestion, &check_numa,
      &check_pci,     &check_clock,        &check_huge_pages, &check_peer_memory};
  for (const auto check : checks) check(s, r);
}

}  // namespace doctor
