#include <cordma/transfer/completion_queue_driver.hpp>
