// SPDX-License-Identifier: MIT
#include "everything.hpp"

int other_unit();

int main() { return other_unit(); }
