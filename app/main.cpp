#include "app/command_line.h"

int main(int argc, char** argv) { return sluice::run_command_line(argc, argv, sluice::make_io_queue); }
