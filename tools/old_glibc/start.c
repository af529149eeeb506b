// SPDX-License-Identifier: MIT
// The start of a program that is linked against stub_libraries.py's. From glibc 2.34 on the start
// code leaves constructors to the C library; older ones, and newer ones for older programs, call what
// they are given. Linked with --wrap=__libc_start_main.
typedef void initializer(int, char**, char**);
extern initializer* const __preinit_array_start[] __attribute__((visibility("hidden")));
extern initializer* const __preinit_array_end[] __attribute__((visibility("hidden")));
extern initializer* const __init_array_start[] __attribute__((visibility("hidden")));
extern initializer* const __init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

static void construct(int count, char** arguments, char** environment) {
    for (initializer* const* at = __preinit_array_start; at < __preinit_array_end; ++at) {
        (*at)(count, arguments, environment);
    }
    _init();
    for (initializer* const* at = __init_array_start; at < __init_array_end; ++at) {
        (*at)(count, arguments, environment);
    }
}

typedef int main_function(int, char**, char**);
extern int __real___libc_start_main(main_function*, int, char**, initializer*, void (*)(void),
                                    void (*)(void), void*);
int __wrap___libc_start_main(main_function* main, int count, char** arguments, initializer* none,
                             void (*finish)(void), void (*loader_finish)(void), void* stack_end) {
    (void)none;
    return __real___libc_start_main(main, count, arguments, construct, finish, loader_finish,
                                    stack_end);
}
