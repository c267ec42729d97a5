module github.com/bloomsday/bloomsday/go

go 1.19

require (
	github.com/twmb/murmur3 v1.1.8
	github.com/zeebo/blake3 v0.2.3
	github.com/zeebo/xxh3 v1.0.2
)

require github.com/klauspost/cpuid/v2 v2.0.12 // indirect
