! SPDX-License-Identifier: MIT
! The same from Fortran: the C interface by iso_c_binding, on a simulated MI210.
program energy
    use, intrinsic :: iso_c_binding
    implicit none

    interface
        integer(c_int) function kdvfs_open_simulated(board, flags, gpu) bind(c)
            import :: c_int, c_char, c_ptr
            character(kind=c_char), intent(in) :: board(*)
            integer(c_int), value :: flags
            type(c_ptr), intent(out) :: gpu
        end function
        integer(c_int) function kdvfs_scope_begin(gpu, stream, name, variant, core_mhz, scope) bind(c)
            import :: c_int, c_int32_t, c_char, c_ptr
            type(c_ptr), value :: gpu, stream
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int32_t), value :: variant, core_mhz
            type(c_ptr), intent(out) :: scope
        end function
        integer(c_int) function kdvfs_scope_end(scope) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: scope
        end function
        integer(c_int) function kdvfs_simulated_launch(gpu, matrix_flops, vector_flops, memory_bytes) bind(c)
            import :: c_int, c_double, c_ptr
            type(c_ptr), value :: gpu
            real(c_double), value :: matrix_flops, vector_flops, memory_bytes
        end function
        integer(c_int) function kdvfs_simulated_synchronize(gpu) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: gpu
        end function
        integer(c_int) function kdvfs_report_json(gpu, json) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: gpu
            type(c_ptr), intent(out) :: json
        end function
        integer(c_int) function kdvfs_close(gpu) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: gpu
        end function
        type(c_ptr) function kdvfs_last_error() bind(c)
            import :: c_ptr
        end function
        subroutine kdvfs_free(text) bind(c)
            import :: c_ptr
            type(c_ptr), value :: text
        end subroutine
        integer(c_int) function puts(text) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: text
        end function
    end interface

    type(c_ptr) :: gpu, scope, report
    integer :: step

    call check(kdvfs_open_simulated('mi210' // c_null_char, 0, gpu))
    do step = 1, 20
        call check(kdvfs_scope_begin(gpu, c_null_ptr, 'stencil' // c_null_char, 0, 1100, scope))
        call check(kdvfs_simulated_launch(gpu, 0d0, 3d9, 4d10))
        call check(kdvfs_scope_end(scope))
        call check(kdvfs_simulated_synchronize(gpu))
    end do
    call check(kdvfs_report_json(gpu, report))
    if (puts(report) < 0) stop 1
    call kdvfs_free(report)
    call check(kdvfs_close(gpu))

contains

    subroutine check(status)
        integer(c_int), intent(in) :: status
        if (status == 0) return
        if (puts(kdvfs_last_error()) < 0) stop 2
        stop 1
    end subroutine

end program
