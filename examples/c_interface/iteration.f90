! SPDX-License-Identifier: MIT
! Ten iterations of one kernel on a simulated GPU.
program iteration
    use kdvfs
    implicit none
    type(c_ptr) :: gpu, json
    type(kdvfs_options) :: options
    type(kdvfs_scope) :: scope
    real(c_double) :: seconds, joules
    character(len=:), allocatable :: report
    integer :: i, row

    call kdvfs_options_init(options)
    if (c_sizeof(options) /= options%size) error stop "kdvfs.f90 and libkdvfs_c are of two versions"
    options%meter_every = 1
    call expect_ok(kdvfs_open_simulated("mi300x"//c_null_char, 1_c_int64_t, options, gpu))
    do i = 1, 10
        call expect_ok(kdvfs_next_iteration(gpu))
        call expect_ok(kdvfs_scope_begin(gpu, c_null_ptr, "gemm"//c_null_char, 0_c_int32_t, scope))
        call expect_ok(kdvfs_simulated_launch(gpu, c_null_ptr, 4d13, 0d0, 1d9))
        call expect_ok(kdvfs_scope_end(scope))
        call expect_ok(kdvfs_simulated_synchronize(gpu))
    end do
    call expect_ok(kdvfs_simulated_totals(gpu, seconds, joules))
    call expect_ok(kdvfs_report_json(gpu, json))
    report = to_text(json)
    call kdvfs_free(json)
    print '(a, f8.4, a, f9.1, a)', "simulated MI300X: ", seconds, " s, ", joules, " J in all"
    row = index(report, '"gemm"')
    print '(a, i0, a, f0.1, a)', "gemm: ", nint(number_behind(report(row:), '"calls":')), &
        " calls, ", number_behind(report(row:), '"joules":'), " J"
    call expect_ok(kdvfs_close(gpu))

contains

    ! The number behind a key of a JSON text.
    real(c_double) function number_behind(text, key)
        character(len=*), intent(in) :: text, key
        integer :: first, length
        first = index(text, key) + len(key)
        length = scan(text(first:), ",}") - 1
        read (text(first:first + length - 1), *) number_behind
    end function

end program
