// Lists the RDMA devices, and the capabilities of the first active one (or the one named).
// Usage: 03_device_info [DEVICE]

#include <cordma/verbs/device.hpp>

#include <cstdio>

int main(int argc, char** argv) try {
  for (const cordma::verbs::device_info& device : cordma::verbs::list_devices()) {
    std::printf("found %s\n", device.name.c_str());
  }
  const cordma::verbs::context context{argc > 1 ? argv[1] : ""};
  const cordma::verbs::device_limits& limits = context.limits();
  const cordma::verbs::port_info port = context.active_port();
  std::printf("%s, port %u: %s, MTU %u, messages up to %u bytes\n", context.info().name.c_str(),
              port.number, port.is_ethernet() ? "Ethernet (RoCE)" : "InfiniBand",
              cordma::verbs::bytes_of(port.mtu_active), port.message_max_bytes);
  std::printf("queue pairs %u, work requests per queue %u, slices per request %u\n", limits.qp_max,
              limits.qp_wr_max, limits.sge_max);
  std::printf("completion queue entries %u, READs and atomics in flight %u, atomics: %s\n",
              limits.cqe_max, limits.qp_init_rd_atom_max,
              limits.atomic == IBV_ATOMIC_NONE ? "no" : "yes");

  const auto table = context.gid_table(port.number);
  for (const cordma::verbs::gid_entry& entry : table) {
    std::printf("GID %u: %s (%s)\n", entry.index, cordma::verbs::to_string(entry.gid).c_str(),
                cordma::verbs::to_string(entry.type));
  }
  std::printf("chosen: GID %u\n", cordma::verbs::choose_gid(table).index);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
