#include <cordma/transfer/receive_queue.hpp>
