"""Build: from a kernel family and a variant to one uniquely named extension, content-addressed, and loading it.

The door is `family.Family`, `build.build` and `loaded_variant.LoadedVariant`. A device's compilers come as a
`toolchain.Toolchain`; nothing here knows which.
"""
