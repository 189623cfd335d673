/* Embeds a variant's cubin into its library, under the names that cuda_host.cpp declares. */
    .section .rodata
    .balign 64
    .global variant_cubin, variant_cubin_end
variant_cubin:
    .incbin "variant.cubin"
variant_cubin_end:
    .section .note.GNU-stack,"",%progbits
