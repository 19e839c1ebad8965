#pragma once

#include <pmix.h>

#include <string>

namespace cordma::detail {

/// The functions of PMIx's client, from the library of a launcher of this host: who uses no PMIx
/// does not need it.
struct pmix_library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get_nb) get = nullptr;
  decltype(&PMIx_Register_event_handler) register_handler = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  /// Loads the library, once. Null: it cannot be.
  static const pmix_library* load() noexcept;
  /// Returns the loader's reason (dlerror(3)), after `load` gave null.
  static const std::string& why_not() noexcept;
};

}  // namespace cordma::detail
