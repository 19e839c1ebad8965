#pragma once

#include "group/collective_call.hpp"
#include "group/exchange.hpp"

#include <cordma/coro/task.hpp>

namespace cordma::detail {

class algorithm_table;

/// An algorithm of a collective operation, on one rank. The call's arguments fit each other. In the
/// comments, p is the number of ranks, n the bytes of the message, b those of a block, s those of a
/// segment. A rank's cost is given as the messages that follow each other, and the bytes it sends.
using algorithm_function = task<>(exchange& x, const collective_call& call,
                                  const algorithm_table& table);

/// In step k each rank tells the one 2^k behind it, and hears from the one 2^k before. log2 p
/// messages.
algorithm_function dissemination_barrier;

/// The root sends to the ranks at distances p/2, p/4 ... 1, which send to those nearer to them.
/// log2 p messages, n log2 p bytes of the root.
algorithm_function binomial_broadcast;
/// Each rank sends each segment on to the next as soon as it has it. p + n/s messages, n bytes.
algorithm_function chain_broadcast;
/// The root scatters the message by a binomial tree. Then all ranks gather it: a power of two by
/// doubling, others by a ring. 2 log2 p or log2 p + p messages, 2n bytes.
algorithm_function scattered_broadcast;

/// The root sends half of the blocks to the rank at distance p/2. Both do so among the ranks nearer
/// to them. log2 p messages, b p/2 log2 p bytes in all. For blocks of one length.
algorithm_function binomial_scatter;
/// The root sends each rank its block. p messages of the root, n bytes.
algorithm_function linear_scatter;
/// The reverse of `binomial_scatter`: blocks go from the leaves to the root.
algorithm_function binomial_gather;
/// Each rank sends its block to the root. p messages of the root.
algorithm_function linear_gather;

/// In step k each rank sends all that it has to the rank 2^k before it. log2 p messages, n bytes;
/// all is copied once.
algorithm_function bruck_all_gather;
/// Ranks at distances 1, 2 ... p/2 swap all that they have. log2 p messages, n bytes, to where they
/// stay.
algorithm_function doubling_all_gather;
/// In each step each rank sends the block that it got last to the next rank. p - 1 messages, n
/// bytes, to where they stay.
algorithm_function ring_all_gather;

/// Two ranks at distances p/2, p/4 ... 1 combine their sums on the one that is nearer to the root.
/// log2 p messages, n bytes.
algorithm_function binomial_reduce;
/// Ranks halve the message and their distance, until each has the sum of a part; the root gathers
/// the parts by a binomial tree. 2 log2 p messages, 2n bytes.
algorithm_function rabenseifner_reduce;

/// Ranks at distances p/2, p/4 ... 1 swap their sums. log2 p messages, n log2 p bytes.
algorithm_function doubling_all_reduce;
/// Ranks halve the message and their distance, until each has the sum of a part; then the parts go
/// the same routes back. 2 log2 p messages, 2n bytes.
algorithm_function rabenseifner_all_reduce;
/// A ring sums up the parts of the message, one for each rank; then a ring gathers them on all.
/// 2p messages, 2n bytes, between neighbours only.
algorithm_function ring_all_reduce;

/// Ranks halve the message and their distance, until each has the sum of its block. log2 p
/// messages, n bytes; all is copied once.
algorithm_function halving_reduce_scatter;
/// Each sum goes round the ring once, and each rank adds its block. p - 1 messages, n bytes,
/// between neighbours only.
algorithm_function ring_reduce_scatter;
/// Each rank sends each other rank's block to it, and sums up those it gets. p - 1 messages at
/// once, n bytes.
algorithm_function pairwise_reduce_scatter;

/// In step k each rank sends the blocks whose distance has bit k to the rank 2^k behind it.
/// log2 p messages, n/2 log2 p bytes; all is copied log2 p times. For blocks of one length.
algorithm_function bruck_all_to_all;
/// Each rank sends each other rank its block, beginning with the next; a few are in flight.
/// p - 1 messages, n bytes.
algorithm_function pairwise_all_to_all;

/// In step k each rank sends the sum of the 2^k ranks up to it to the rank 2^k behind it (Hillis
/// and Steele). log2 p messages, n log2 p bytes.
algorithm_function doubling_scan;

/// Two levels: first among the ranks of each host, then among one rank of each host, and then among
/// those of each host again. Each level runs the algorithm that the table has for it.
algorithm_function two_level_barrier;
algorithm_function two_level_broadcast;
algorithm_function two_level_all_gather;  ///< For hosts of as many consecutive ranks each.
algorithm_function two_level_reduce;
algorithm_function two_level_all_reduce;

}  // namespace cordma::detail
