! SPDX-License-Identifier: MIT
! The C interface of kdvfs for Fortran; include/kdvfs/kdvfs.h describes each function.
module kdvfs
    use, intrinsic :: iso_c_binding
    implicit none

    type, bind(c) :: kdvfs_scope
        integer(c_int64_t) :: opaque(8)
    end type

    type, bind(c) :: kdvfs_options
        integer(c_size_t) :: size
        integer(c_int) :: measure_if_refused
        integer(c_int32_t) :: meter_every
        integer(c_int32_t) :: never_below_mhz
        integer(c_int32_t) :: never_above_mhz
        integer(c_int64_t) :: switch_latency_ns
        integer(c_int32_t) :: idle_clock_mhz
        integer(c_int64_t) :: idle_after_ns
    end type

    interface
        function kdvfs_last_error() bind(c) result(text)
            import
            type(c_ptr) :: text
        end function
        subroutine kdvfs_free(text) bind(c)
            import
            type(c_ptr), value :: text
        end subroutine
        subroutine kdvfs_options_init(options) bind(c)
            import
            type(kdvfs_options), intent(out) :: options
        end subroutine
        integer(c_int) function kdvfs_open_simulated(preset, seed, options, gpu) bind(c)
            import
            character(kind=c_char), intent(in) :: preset(*)
            integer(c_int64_t), value :: seed
            type(kdvfs_options), intent(in) :: options
            type(c_ptr), intent(out) :: gpu
        end function
        integer(c_int) function kdvfs_open(vendor, address, options, gpu) bind(c)
            import
            character(kind=c_char), intent(in) :: vendor(*), address(*)
            type(kdvfs_options), intent(in) :: options
            type(c_ptr), intent(out) :: gpu
        end function
        integer(c_int) function kdvfs_close(gpu) bind(c)
            import
            type(c_ptr), value :: gpu
        end function
        integer(c_int) function kdvfs_next_iteration(gpu) bind(c)
            import
            type(c_ptr), value :: gpu
        end function
        integer(c_int) function kdvfs_scope_begin(gpu, stream, name, variant, scope) bind(c)
            import
            type(c_ptr), value :: gpu, stream
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int32_t), value :: variant
            type(kdvfs_scope), intent(inout) :: scope
        end function
        integer(c_int) function kdvfs_scope_end(scope) bind(c)
            import
            type(kdvfs_scope), intent(inout) :: scope
        end function
        integer(c_int) function kdvfs_report_json(gpu, json) bind(c)
            import
            type(c_ptr), value :: gpu
            type(c_ptr), intent(out) :: json
        end function
        integer(c_int) function kdvfs_simulated_launch(gpu, stream, matrix_flops, vector_flops, &
                memory_bytes) bind(c)
            import
            type(c_ptr), value :: gpu, stream
            real(c_double), value :: matrix_flops, vector_flops, memory_bytes
        end function
        integer(c_int) function kdvfs_simulated_synchronize(gpu) bind(c)
            import
            type(c_ptr), value :: gpu
        end function
        integer(c_int) function kdvfs_simulated_totals(gpu, seconds, joules) bind(c)
            import
            type(c_ptr), value :: gpu
            real(c_double), intent(out) :: seconds, joules
        end function
        pure integer(c_size_t) function c_length(text) bind(c, name="strlen")
            import
            type(c_ptr), value, intent(in) :: text
        end function
    end interface

contains

    ! A C text as a Fortran text.
    function to_text(from) result(text)
        type(c_ptr), intent(in) :: from
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer(c_size_t) :: i
        call c_f_pointer(from, letters, [c_length(from)])
        allocate (character(len=size(letters)) :: text)
        do i = 1, size(letters)
            text(i:i) = letters(i)
        end do
    end function

    subroutine expect_ok(status)
        integer(c_int), intent(in) :: status
        if (status == 0) return
        print '(a)', to_text(kdvfs_last_error())
        error stop 1
    end subroutine

end module
