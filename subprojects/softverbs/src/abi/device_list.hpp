#pragma once

namespace softverbs {

/// True while this thread is inside a function of the IBVERBS_1.0 ABI, where soft0 does not exist.
/// The real library's old functions call the new names, which are softverbs' when it is preloaded.
extern thread_local bool is_soft_hidden;

}  // namespace softverbs
