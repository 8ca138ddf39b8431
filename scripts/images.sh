#!/usr/bin/env bash
# Makes sure that the container image zookeeper:3.9 is there: present, pulled, or,
# where no registry answers, a stand-in made from the jars of scripts/jars.sh
# with the same variables, paths and commands as far as they are used here.
#
#   scripts/images.sh JARS
#
# Exit codes: 0 there; 2 usage; 3 it cannot be had (the reason is printed).
set -euo pipefail
if [ $# -ne 1 ] || [ ! -d "$1" ]; then
  echo "usage: $0 JARS" >&2
  exit 2
fi
jars=$(cd "$1" && pwd)
image=zookeeper:3.9
fail() {
  echo "images: $image is neither here nor to be pulled, and cannot be made: $*" >&2
  exit 3
}

if docker image inspect $image >/dev/null 2>&1; then
  exit 0
fi
if timeout 300 docker pull -q $image >/dev/null 2>&1; then
  exit 0
fi

lib=$(find "$jars" -maxdepth 1 -name 'zk-3.9.*' | sort -V | tail -1)
[ -n "$lib" ] || fail "no zk-3.9.* in $jars (scripts/jars.sh $jars zk-3.9.5)"
command -v jlink >/dev/null || fail "jlink is missing (Debian: openjdk-17-jdk-headless)"
if [ ! -x /bin/busybox ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends busybox-static >/dev/null 2>&1 || true
  fi
fi
[ -x /bin/busybox ] || fail "/bin/busybox is missing (Debian: busybox-static)"
ldd /bin/busybox >/dev/null 2>&1 && fail "/bin/busybox is not static (Debian: busybox-static)"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
runtime=$jars/.runtime
if [ ! -e "$runtime/.ok" ]; then
  rm -rf "$runtime"
  jlink --add-modules java.base,java.logging,java.management,java.naming,java.security.jgss,java.security.sasl,java.xml,jdk.crypto.ec,jdk.management,jdk.unsupported \
    --strip-java-debug-attributes --no-header-files --no-man-pages --output "$runtime"
  touch "$runtime/.ok"
fi
mkdir -p "$root"/{bin,etc,tmp,conf,data,datalog,opt/java,opt/zookeeper/bin,opt/zookeeper/lib}
cp -a "$runtime" "$root/opt/java/runtime"
cp "$lib"/*.jar "$root/opt/zookeeper/lib/"
# The runtime's own libraries, with the path that each has on this machine.
ldd "$runtime/bin/java" "$runtime/lib/server/libjvm.so" "$runtime"/lib/lib{nio,net,management}.so 2>/dev/null |
  grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r file; do
  case $file in "$runtime"/*) continue ;; esac
  [ -e "$file" ] || continue
  mkdir -p "$root$(dirname "$file")"
  cp -Ln "$file" "$root$file"
done
cp /bin/busybox "$root/bin/busybox"
for name in $(/bin/busybox --list); do
  [ "$name" = busybox ] || ln -s busybox "$root/bin/$name"
done
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
cat >"$root/entrypoint.sh" <<'SH'
#!/bin/sh
set -ef
if [ ! -e /conf/zoo.cfg ]; then
  cat >/conf/zoo.cfg <<CFG
dataDir=/data
dataLogDir=/datalog
tickTime=${ZOO_TICK_TIME:-2000}
initLimit=${ZOO_INIT_LIMIT:-5}
syncLimit=${ZOO_SYNC_LIMIT:-2}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}
admin.enableServer=false
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
CFG
  for line in ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181} $ZOO_CFG_EXTRA; do echo "$line" >>/conf/zoo.cfg; done
fi
[ -e /data/myid ] || echo "${ZOO_MY_ID:-1}" >/data/myid
exec "$@"
SH
cat >"$root/opt/zookeeper/bin/zkServer.sh" <<'SH'
#!/bin/sh
[ "$1" = start-foreground ] || { echo "usage: zkServer.sh start-foreground" >&2; exit 2; }
exec java -Xmx"${ZK_SERVER_HEAP:-256}m" -XX:+UseSerialGC $JVMFLAGS $SERVER_JVMFLAGS \
  -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
SH
chmod 755 "$root/entrypoint.sh" "$root/opt/zookeeper/bin/zkServer.sh" "$root"
chmod 1777 "$root/tmp"
tar -C "$root" -c . | docker import \
  -c 'ENV PATH=/opt/zookeeper/bin:/opt/java/runtime/bin:/bin' \
  -c 'ENTRYPOINT ["/entrypoint.sh"]' -c 'CMD ["zkServer.sh","start-foreground"]' \
  -c 'EXPOSE 2181 2888 3888' -c 'VOLUME ["/data","/datalog"]' - $image >/dev/null
echo "images: $image made from $(basename "$lib"), no registry answered" >&2
