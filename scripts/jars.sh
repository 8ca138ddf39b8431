#!/usr/bin/env bash
# Fetches published releases of Kafka and ZooKeeper with Maven: one folder of
# jars for each, complete when it has the file .ok.
#
#   scripts/jars.sh FOLDER RELEASE...      # releases: 2.4.1 2.8.2 3.5.2 3.9.1 ... zk-3.9.5
#
# Exit codes: 0 all there; 2 usage; 3 Maven is missing or could not fetch.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 FOLDER RELEASE..." >&2
  exit 2
fi
mkdir -p "$1"
into=$(cd "$1" && pwd)
shift
missing=()
for release in "$@"; do
  [ -e "$into/$release/.ok" ] || missing+=("$release")
done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v mvn >/dev/null || {
  echo "jars: mvn is missing; install Maven (Debian: apt-get install maven), or fill $into yourself" >&2
  exit 3
}

artifact() { # group:artifact:version [excluded group:artifact]
  local g a v
  IFS=: read -r g a v <<<"$1"
  echo "<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version>"
  if [ $# -gt 1 ]; then
    echo "<exclusions><exclusion><groupId>${2%:*}</groupId><artifactId>${2#*:}</artifactId></exclusion></exclusions>"
  fi
  echo "</dependency>"
}

artifacts() { # RELEASE
  case $1 in
    zk-*) # The server needs metrics-core and snappy, though its pom calls them provided; commons-cli is for its shell.
      artifact "org.apache.zookeeper:zookeeper:${1#zk-}" io.netty:netty-tcnative-boringssl-static
      artifact io.dropwizard.metrics:metrics-core:4.1.12.1
      artifact org.xerial.snappy:snappy-java:1.1.10.5
      artifact org.slf4j:slf4j-simple:2.0.13
      artifact commons-cli:commons-cli:1.5.0
      ;;
    0.9.* | 0.10.[01].*)
      artifact "org.apache.kafka:kafka_2.11:$1"
      artifact javax.xml.bind:jaxb-api:2.3.1
      ;;
    0.* | 1.* | 2.[0-3].*)
      artifact "org.apache.kafka:kafka_2.12:$1"
      artifact javax.xml.bind:jaxb-api:2.3.1
      ;;
    2.*) # kafka-tools of these releases brings a second log back end.
      artifact "org.apache.kafka:kafka_2.13:$1"
      artifact org.slf4j:slf4j-reload4j:1.7.36
      ;;
    *)
      artifact "org.apache.kafka:kafka_2.13:$1"
      artifact "org.apache.kafka:kafka-tools:$1"
      artifact org.slf4j:slf4j-reload4j:1.7.36
      ;;
  esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pom() { # NAME, body on stdin
  mkdir -p "$work/$1"
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo "<groupId>zkcontroller</groupId><artifactId>$1</artifactId><version>1</version><packaging>pom</packaging>"
    cat
    echo '</project>'
  } >"$work/$1/pom.xml"
}
for release in "${missing[@]}"; do
  { echo "<dependencies>"; artifacts "$release"; echo "</dependencies>"; } | pom "$release"
done
{ echo "<modules>"; for release in "${missing[@]}"; do echo "<module>../$release</module>"; done; echo "</modules>"; } | pom all
echo "jars: fetching ${missing[*]}" >&2
mvn -q -B -ntp -Dstyle.color=never -T2 -f "$work/all/pom.xml" \
  org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
  -DincludeScope=runtime "-DoutputDirectory=$work/jars/\${project.artifactId}" >&2 || {
  echo "jars: Maven could not fetch ${missing[*]}" >&2
  exit 3
}
for release in "${missing[@]}"; do
  rm -rf "${into:?}/$release"
  mv "$work/jars/$release" "$into/$release"
  touch "$into/$release/.ok"
done
