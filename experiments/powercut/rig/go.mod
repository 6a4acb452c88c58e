module shardlease/experiments/powercut/rig

go 1.26.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.50.0
	pgregory.net/rapid v1.3.0
	shardlease v0.0.0
)

replace shardlease => ../../..
