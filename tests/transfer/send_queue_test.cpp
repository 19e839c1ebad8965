#include <cordma/transfer/send_queue.hpp>
