#include "abi/real_library.hpp"

#include <cstddef>

// Functions for kernel structures, sysfs files and drivers. soft0 has none of these: the real
// library answers, if there is one. No public header declares the names, hence the plain pointers.

using namespace softverbs;

extern "C" {

void ibv_copy_ah_attr_from_kern(void* to, void* from) {
  real::call<"ibv_copy_ah_attr_from_kern">(ibv_copy_ah_attr_from_kern, to, from);
}
void ibv_copy_qp_attr_from_kern(void* to, void* from) {
  real::call<"ibv_copy_qp_attr_from_kern", "IBVERBS_1.0">(ibv_copy_qp_attr_from_kern, to, from);
}
void ibv_copy_path_rec_from_kern(void* to, void* from) {
  real::call<"ibv_copy_path_rec_from_kern", "IBVERBS_1.0">(ibv_copy_path_rec_from_kern, to, from);
}
void ibv_copy_path_rec_to_kern(void* to, void* from) {
  real::call<"ibv_copy_path_rec_to_kern", "IBVERBS_1.0">(ibv_copy_path_rec_to_kern, to, from);
}

const char* ibv_get_sysfs_path() {
  const char* const path = real::call<"ibv_get_sysfs_path", "IBVERBS_1.0">(ibv_get_sysfs_path);
  return path != nullptr ? path : "/sys";
}
int ibv_read_sysfs_file(const char* directory, const char* file, char* to, std::size_t bytes) {
  auto* const read = real::function<"ibv_read_sysfs_file", "IBVERBS_1.0",
                                    int(const char*, const char*, char*, std::size_t)>();
  constexpr int failed = -1;
  return read != nullptr ? read(directory, file, to, bytes) : failed;
}

}  // extern "C"
